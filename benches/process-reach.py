#!/usr/bin/env python3
"""What the `process` of every stage can reach, read off the instructions: benches/process-reach.py PROGRAM

PROGRAM holds the stages, such as the newest target/debug/deps/stages-* (`cargo test -p quiet-dsp --test stages`). Whatever a
function calls, jumps to, takes the address of or loads from the table of addresses counts as called, and so on from there;
panics are not followed. Exits with 1 if memory, a lock or the system could be asked for. Needs binutils.

Calls through a register are listed: stages in a strip are called so (each `process` is a root of its own here).
"""
import collections
import re
import subprocess
import sys

PANICS = re.compile(r"core::panicking|slice_(index|start|end)|_fail$|unwrap_failed|expect_failed|panic_|handle_error|begin_panic"
                    r"|_Unwind_Resume|core::slice::index::|len_mismatch|cannot_unwind|in_cleanup")
ROOT = re.compile(r"quiet_dsp.* as quiet_dsp::Stage>::process$")
WRONG = re.compile(r"drop_in_place|alloc::|__rust|malloc|calloc|realloc|free|futex|syscall|pthread|std::")


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout.splitlines()


def slots(program):
    """Where the table of addresses leads: a function's address, or a name from outside."""
    found = {}
    for line in lines("readelf", "-rW", program):
        match = re.match(r"([0-9a-f]{12,16})\s+\S+\s+(R_\w+)\s+(.*)$", line)
        if match:
            words = match[3].split()
            target = int(words[-1], 16) if match[2].endswith("_RELATIVE") else words[1] if len(words) > 1 else words[0]
            found[int(match[1], 16)] = target
    return found


def graph(program):
    table, name, calls, register, here = slots(program), {}, collections.defaultdict(set), set(), None
    for line in lines("objdump", "-d", "--no-show-raw-insn", "-C", program):
        if match := re.match(r"([0-9a-f]+) <(.*)>:$", line):
            here = int(match[1], 16)
            name[here] = match[2]
        elif here is not None and "\t" in line:
            code = line.split("\t", 1)[1]
            if match := re.match(r"(?:bnd )?(?:call|j[a-z]+)\s+([0-9a-f]+) <", code):
                calls[here].add(int(match[1], 16))
            elif match := re.search(r"# ([0-9a-f]+) <", code):
                at = int(match[1], 16)
                if at in table:
                    calls[here].add(table[at])
                elif code.startswith("lea"):
                    calls[here].add(at)
            elif re.match(r"call\s+\*", code):
                register.add(here)
    return name, calls, register


def main():
    name, calls, register = graph(sys.argv[1])
    roots = [at for at, text in name.items() if ROOT.search(text)]
    if not roots:
        sys.exit("no `process` of a stage in this program: is it stripped?")
    told = lambda at: at if isinstance(at, str) else name[at]
    by, todo = {}, [(root, None) for root in roots]
    while todo:
        at, caller = todo.pop()
        if at in by or not (isinstance(at, str) or at in name):
            continue
        by[at] = caller
        if not PANICS.search(told(at)):
            todo.extend((to, at) for to in calls.get(at, ()))
    reached = [at for at in by if not PANICS.search(told(at))]
    print(f"{len(roots)} process functions reach or name {len(reached)} functions")
    print("from outside:", ", ".join(sorted(at for at in reached if isinstance(at, str))))
    print("through a register:", ", ".join(sorted({told(at) for at in reached if at in register and "quiet_dsp" in told(at)})))
    wrong = [at for at in reached if WRONG.search(told(at))]
    for at in wrong:
        way, up = [], at
        while up is not None:
            way.append(told(up))
            up = by[up]
        print("NOT IN REAL TIME:", " <- ".join(way))
    sys.exit(1 if wrong else 0)


main()
