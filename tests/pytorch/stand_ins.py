# SPDX-License-Identifier: BSD-3-Clause
"""stand_ins.py TORCH_DIRECTORY: libraries in place of those for GPUs that a torch from PyPI is
linked with.

Such a torch is linked with some 3 GB of libraries, of which a machine without a GPU calls nothing.
What is made here has their names and the symbols that torch asks of them, into torch's own folder,
and each function only fails. An environment with them is for tests on the CPU and for nothing else.
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

# What every function returns: CUDA's "no device", and no success in any other of these libraries.
FAILURE = 100
# What a text is expected of has one, for it may be printed.
TEXT = re.compile(
    r"(Error|Result|Status).*(String|Name)|(String|Name).*(Error|Result|Status)|GetVersionString"
)

# Libraries of the C and C++ compilers, which every machine has. All others are taken for GPUs',
# even where the machine has them: torch would find one of another version.
ORDINARY = re.compile(r"ld-linux|lib(c|m|dl|rt|z|pthread|stdc\+\+|gcc_s|gomp|quadmath)\.so")

Symbols = dict[str, dict[str, set[str]]]  # library: version or "": symbols


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(library: pathlib.Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", str(library)))


def dynamic_symbols(library: pathlib.Path, which: str) -> list[tuple[str, str]]:
    """Name and version ("" if it has none) of each."""
    lines = output("nm", "-D", which, str(library)).splitlines()
    found = (re.search(r" [A-Za-z] ([^@\s]+)(?:@+(\S+))?$", line) for line in lines)
    return [(match[1], match[2] or "") for match in found if match]


def versions_needed(library: pathlib.Path) -> dict[str, str]:
    """Which library each version is asked of."""
    owners, owner = {}, ""
    for line in output("readelf", "-VW", str(library)).splitlines():
        if match := re.search(r"Version: \d+ +File: (\S+)", line):
            owner = match[1]
        elif match := re.search(r"Name: (\S+) +Flags: \S+ +Version: \d+", line):
            owners[match[1]] = owner
    return owners


def wanted(folder: pathlib.Path) -> Symbols:
    """What torch's libraries ask of those that are not there."""
    libraries = sorted(path for path in folder.iterdir() if ".so" in path.name)
    names = {path.name for path in libraries}
    own = {symbol for path in libraries for symbol, _ in dynamic_symbols(path, "--defined-only")}
    result: Symbols = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in libraries:
        missing = [
            name for name in needed_by(path) if name not in names and not ORDINARY.match(name)
        ]
        for name in missing:
            result[name][""].update()
        if not missing:
            continue
        owners = versions_needed(path)
        for symbol, version in dynamic_symbols(path, "--undefined-only"):
            owner = owners.get(version, missing[0])
            # Without a version any library may have it: one of torch's, the C++ library, Python
            # itself.
            if owner in missing and (
                version or symbol not in own and not symbol.startswith(("_Z", "Py", "_Py"))
            ):
                result[owner][version].add(symbol)
    return result


def write(folder: pathlib.Path, name: str, versions: dict[str, set[str]]) -> None:
    source, script, library = (folder / f"{name}.{end}" for end in ("c", "map", "part"))
    code = []
    for symbol in sorted(set().union(*versions.values())):
        is_text = TEXT.search(symbol)
        code.append(
            f'const char *{symbol}(void) {{ return "a stand-in for {name}"; }}'
            if is_text
            else f"long {symbol}(void) {{ return {FAILURE}; }}"
        )
    source.write_text("\n".join(code) + "\n")
    nodes = [
        f"{version} {{ global: {' '.join(f'{s};' for s in sorted(symbols))} }};\n"
        for version, symbols in versions.items()
        if version
    ]
    script.write_text("".join(nodes))
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-fno-builtin",
        f"-Wl,-soname,{name}",
        "-o",
        str(library),
    ]
    if nodes:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, str(source)], check=True)
    library.rename(folder / name)
    source.unlink()
    script.unlink()


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) / "lib"
    found = wanted(folder)
    for name, versions in found.items():
        write(folder, name, versions)
        print(f"{name}: {sum(map(len, versions.values()))} symbols")
    print("This torch runs on CPUs only, and is for tests of symmem_torch only.")


if __name__ == "__main__":
    main()
