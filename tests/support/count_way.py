#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the way of an operation through the code: the functions that it enters, the files that these are in, and how often it moves from one to another.

    count_way.py echo    `paceline train` of one echo, on one host
    count_way.py stop    SIGTERM to two ranks of one host, which save, from the signal to the end
    count_way.py sum     one warm sum by name on two ranks, below hvd.allreduce(): of many the one that polls least

Each prints a line for process 1, or for a rank, as it is, and one without base/, entrypoint/proc/, and the texts and lists of a job (strv.c): calls of these have no
way of their own. --files prints the way itself. The program is built here with -finstrument-functions; record() runs any command of such a build.
"""
import argparse
import array
import collections
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PLAIN = ('base/', 'entrypoint/proc/', 'entrypoint/job/strv.c')
SMALL = ('-Dexamples=false', '-Dcuda=disabled', '-Dhorovod=disabled', '-Dstacks=disabled', '-Dtests=disabled')
LOOK_UPS = ('pl_named_table_find', 'pl_service_find_name')
ALLOCATIONS = ('pl_memory_new', 'pl_memory_new_aligned')


def build(folder, *targets, options=SMALL):
    """Builds targets with the hooks' calls, and the hooks."""
    if not (folder / 'build.ninja').exists():
        subprocess.run(['meson', 'setup', '-Dbuildtype=debug', '-Dc_args=-finstrument-functions', *options, folder, SOURCE], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(['ninja', '-C', folder, *targets], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(['cc', '-O1', '-shared', '-fPIC', '-o', folder / 'way.so', SOURCE / 'tests/support/count_way.c'], check=True)


def record(folder, command, environment, during=lambda process: None):
    """Runs the command, with `during` while it runs. Returns the ways of its processes by their ids: pairs of a function's name and its file."""
    with tempfile.TemporaryDirectory() as traces:
        process = subprocess.Popen(command, env={**environment, 'LD_PRELOAD': str(folder / 'way.so'), 'WAY_FOLDER': traces}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        begin = during(process, pathlib.Path(traces))  # what is before it is not counted
        words = process.communicate()[1]
        if process.returncode != 0:
            raise SystemExit(f'{command} exited with {process.returncode}: {words}')
        return process.pid, {int(path.name): name(path)[begin or 0:] for path in pathlib.Path(traces).iterdir() if path.suffix == ''}


def entered(path):
    addresses = array.array('Q')
    with path.open('rb') as file:  # which has a hole at its end
        while not addresses or addresses[-1] != 0:
            addresses.frombytes(file.read(1 << 16))
    return addresses[:addresses.index(0)]


def name(path):
    addresses = entered(path)
    modules = collections.defaultdict(dict)
    for line in path.with_name(path.name + '.maps').read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[5].startswith('/'):
            low, high = (int(word, 16) for word in words[0].split('-'))
            modules[words[5]].setdefault('base', low - int(words[2], 16))
            modules[words[5]].setdefault('ranges', []).append((low, high))
    names = {}
    for module, what in modules.items():
        own = [address for address in set(addresses) if any(low <= address < high for low, high in what['ranges'])]
        if own:
            lines = subprocess.run(['addr2line', '-f', '-e', module], input='\n'.join(hex(address - what['base']) for address in own), stdout=subprocess.PIPE, text=True,
                                   check=True).stdout.splitlines()
            for address, function, place in zip(own, lines[::2], lines[1::2]):
                file = place.rsplit(':', 1)[0]
                names[address] = function, os.path.relpath(file, SOURCE) if file.startswith('/') else file
    return [names.get(address, ('?', '?')) for address in addresses]


def count(title, way):
    files = [file for _, file in way]
    moves = sum(before != after for before, after in zip(files, files[1:]))
    print(f'{title}: {len(way)} entries, {len(set(way))} functions, {len(set(files))} files, {moves} moves')


def show(title, way, with_files):
    count(title, way)
    short = [step for step in way if not step[1].startswith(PLAIN)]
    count(f'{title}, without plain calls', short)
    if with_files:
        last = None
        for function, file in short:
            print(f'    {function}' if file == last else f'{file}\n    {function}')
            last = file


def environment():
    kept = {name: os.environ[name] for name in ('PATH', 'HOME') if name in os.environ}
    return {**kept, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def tree(folder, hyperparameters, script):
    config = folder / 'ml/input/config'
    config.mkdir(parents=True)
    (folder / 'ml/code').mkdir()
    (config / 'hyperparameters.json').write_text(json.dumps({'sagemaker_program': 'train.sh', **hyperparameters}))
    (config / 'resourceconfig.json').write_text(json.dumps({'current_host': 'algo-1', 'hosts': ['algo-1'], 'network_interface_name': 'lo'}))
    (folder / 'ml/code/train.sh').write_text(script)
    return {**environment(), 'SAGEMAKER_BASE_DIR': str(folder / 'ml')}


def stop(ready):
    def send(process, traces):
        while process.poll() is None and len(list(ready.glob('ready-*'))) < 2:
            time.sleep(0.05)
        begin = len(entered(traces / str(process.pid)))
        os.kill(process.pid, signal.SIGTERM)
        return begin
    return send


def sum_by_name(made, variables):
    """Prints the way of the shortest call of sum() on one of the ranks."""
    _, ways = record(made, ['mpirun', '-n', '2', '--oversubscribe', str(made / 'tests/bench/sum_way')], variables, lambda process, traces: 0)
    way = max(ways.values(), key=len)
    begins = [i for i, step in enumerate(way) if step == ('sum', 'tests/bench/sum_way.c')]
    shortest = min((way[begin:end] for begin, end in zip(begins, begins[1:])), key=len)
    functions = [function for function, _ in shortest]
    print(f'sum: {sum(function in LOOK_UPS for function in functions)} look-ups by name, {sum(function in ALLOCATIONS for function in functions)} allocations')
    return shortest


def of_process_1(made, folder, way):
    if way == 'echo':
        variables, during = tree(folder, {'epochs': '3', 'lr': '0.1'}, '#!/bin/sh\necho trained\n'), lambda process, traces: 0
    else:
        variables = tree(folder, {'sagemaker_mpi_enabled': 'true', 'sagemaker_mpi_num_of_processes_per_host': '2'},
                         '#!/bin/sh\ntrap "exit 0" TERM\ntouch "$SM_MODEL_DIR/ready-$OMPI_COMM_WORLD_RANK"\nwhile :; do sleep 0.05; done\n')
        during = stop(folder / 'ml/model')
    first, ways = record(made, [str(made / 'entrypoint/paceline'), 'train'], variables, during)
    return ways[first]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('way', choices=('echo', 'stop', 'sum'))
    parser.add_argument('--files', action='store_true')
    parser.add_argument('--build', type=pathlib.Path, help='a folder for the build, which stays')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        made = options.build.absolute() if options.build else folder / 'build'
        if options.way == 'sum':
            build(made, 'tests/bench/sum_way', options=())
            way = sum_by_name(made, environment())
        else:
            build(made, 'entrypoint/paceline', 'programs/libpaceline-hostname.so')
            way = of_process_1(made, folder, options.way)
        show(options.way, way, options.files)


main()
