/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the process's Python interpreter whether it is ending, and makes Horovod's Python calls raise their errors. */
#include "runtime/horovod/state.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum { FILE_INPUT = 257 }; /* value of Py_file_input */

/* Exit hooks run after the main thread has ended. An exception that nobody has caught is stored in `sys`. */
static const char asks_state[] = "import sys, threading\n"
                                 "answer = 0\n"
                                 "if not threading.main_thread().is_alive():\n"
                                 "    failed = getattr(sys, 'last_type', None) or getattr(sys, 'last_exc', None)\n"
                                 "    answer = 2 if failed else 1\n";

/* ctypes calls a function's `errcheck` after each call; an exception in it is raised by the call. */
static const char installs_check[] =
    "import ctypes, sys\n"
    "def install(library):\n"
    "    library.horovod_paceline_error.restype = ctypes.c_char_p\n"
    "    def check(result, *_):\n"
    "        text = library.horovod_paceline_error() if result < 0 else None\n"
    "        if text:\n"
    "            raise ValueError(text.decode('utf-8', 'replace'))\n"
    "        return result\n"
    "    for name in ('horovod_add_process_set', 'horovod_start_timeline'):\n"
    "        getattr(library, name).errcheck = check\n"
    "answer = 0\n"
    "for framework in ('torch', 'tensorflow'):\n"
    "    basics = getattr(sys.modules.get(f'horovod.{framework}.mpi_ops'), '_basics', None)\n"
    "    if basics is not None:\n"
    "        install(basics.MPI_LIB_CTYPES)\n"
    "        answer = 1\n";

/* CPython's functions, in the order of their names below. Objects are opaque here. */
struct python {
    int (*initialized)(void);
    int (*ensure)(void);
    void (*release)(int before);
    void *(*compile)(const char *source, const char *name, int start);
    void *(*evaluate)(void *code, void *globals, void *locals);
    void *(*dict)(void);
    int (*set_item)(void *dict, const char *key, void *value);
    void *(*get_item)(void *dict, const char *key);
    void *(*builtins)(void);
    long (*number)(void *object);
    void (*print)(void);
    void (*decrease)(void *object);
};

static bool find_python(struct python *python)
{
    static const char *const names[] = {"Py_IsInitialized",     "PyGILState_Ensure",    "PyGILState_Release",
                                        "Py_CompileString",     "PyEval_EvalCode",      "PyDict_New",
                                        "PyDict_SetItemString", "PyDict_GetItemString", "PyEval_GetBuiltins",
                                        "PyLong_AsLong",        "PyErr_Print",          "Py_DecRef"};
    void *found[sizeof(names) / sizeof(names[0])];

    _Static_assert(sizeof(found) == sizeof(*python), "a name for each function");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found[i] = dlsym(RTLD_DEFAULT, names[i]);
        if (!found[i]) {
            return false;
        }
    }
    memcpy(python, found, sizeof(*python));
    return python->initialized();
}

/* Runs the lines in `source` and returns their number `answer`; 0 if there is no Python, or if the lines fail. */
static long run(const char *source)
{
    struct python python;
    void *globals, *code = NULL, *result = NULL, *answer = NULL;
    long number = 0;
    int before;

    if (!find_python(&python)) {
        return 0;
    }
    before = python.ensure();
    globals = python.dict();
    if (globals && python.set_item(globals, "__builtins__", python.builtins()) == 0) {
        code = python.compile(source, "paceline", FILE_INPUT);
        result = code ? python.evaluate(code, globals, globals) : NULL;
        answer = result ? python.get_item(globals, "answer") : NULL; /* borrowed reference */
    }
    if (answer) {
        number = python.number(answer);
    } else {
        python.print();
    }
    if (result) {
        python.decrease(result);
    }
    if (code) {
        python.decrease(code);
    }
    if (globals) {
        python.decrease(globals);
    }
    python.release(before);
    return number;
}

enum pl_interpreter pl_interpreter_state(void)
{
    return (enum pl_interpreter)run(asks_state);
}

bool pl_interpreter_install_check(void)
{
    return run(installs_check) == 1;
}
