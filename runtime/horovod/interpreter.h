/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The Python that has loaded the library, where there is one, by functions that are looked up at run time: the library
 * serves the modules of several frameworks, and links no Python.
 *
 * Threads  any that does not hold the interpreter's lock in another interpreter; ctypes has released it.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_INTERPRETER_H
#define PL_RUNTIME_HOROVOD_INTERPRETER_H

#include <stdbool.h>

enum pl_interpreter {
    PL_INTERPRETER_RUNS,   /* or is not there */
    PL_INTERPRETER_ENDS,   /* its exit hooks run, which do not know the exit status */
    PL_INTERPRETER_FAILED, /* the same, after an exception that nobody has caught */
};

enum pl_interpreter pl_interpreter_state(void);

/**
 * Let a call of Horovod's Python that returns less than 0 raise a ValueError with the text of horovod_paceline_error(),
 * if there is one. False where Horovod's Python is not there.
 */
bool pl_interpreter_install_check(void);

#endif
