/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The Python interpreter that has loaded the library, if there is one. Its functions are looked up at run time: the
 * library serves the modules of several frameworks, and does not link Python.
 *
 * Threads  any thread that does not hold the lock of another interpreter; ctypes has released the lock.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_INTERPRETER_H
#define PL_RUNTIME_HOROVOD_INTERPRETER_H

#include <stdbool.h>

enum pl_interpreter {
    PL_INTERPRETER_RUNS,   /* also if there is no interpreter */
    PL_INTERPRETER_ENDS,   /* its exit hooks run; they do not know the exit status */
    PL_INTERPRETER_FAILED, /* its exit hooks run after an exception that the program did not catch */
};

enum pl_interpreter pl_interpreter_state(void);

/**
 * Makes calls of Horovod's Python that return less than 0 raise a ValueError with the text of horovod_paceline_error(),
 * if there is one. Returns false if Horovod's Python is not loaded.
 */
bool pl_interpreter_install_check(void);

#endif
