# SPDX-License-Identifier: Apache-2.0
"""Python imports this at its start if the job watches for hangs (PACELINE_HANG_S): it writes its stacks on demand.

`paceline stacks` sends the signal and reads the file (programs/stacks/python.h). The user's own
sitecustomize, later on sys.path, is still imported.
"""
import sys


def _register_stacks():
    import faulthandler
    import os
    folder = os.environ.get("PACELINE_PYTHON_STACKS")
    if folder:
        # SIGRTMAX - 2; kept open for the process's time, also when the directory goes away
        faulthandler.register(62, file=open(os.path.join(folder, str(os.getpid())), "w"), all_threads=True)


def _import_the_next():
    """Python imports only one module of this name: import the next one on the path too, instead of this one."""
    import os
    here = os.path.dirname(os.path.abspath(__file__))
    path = list(sys.path)
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in path if os.path.abspath(entry or os.curdir) != here]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


try:
    _register_stacks()
except Exception as error:  # the program runs without it, because it only helps the watch
    print(f"paceline: Python's stacks will not be shown: {error}", file=sys.stderr)
_import_the_next()
