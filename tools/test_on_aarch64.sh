#!/usr/bin/env bash
# Run the tests of exactness as on a 64-bit ARM processor, emulated on an x86-64 Debian machine.
#
#     tools/test_on_aarch64.sh FOLDER [PYTEST ARGUMENTS...]
#
# FOLDER receives Debian's ARM libraries with Python (90 MB), ARM wheels of what the tests need (1.3 GB) and the machine
# code of the kernels, and is used again by the next run. Needs `apt-get install qemu-user mmdebstrap` and a Python with
# pip; set PYTHON to choose it. Emulated code runs 20 to 50 times slower: the kernels alone compile for half an hour.
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:?name the folder that keeps the ARM files}"
folder=$(cd "$1" && pwd)
shift
if [ $# -eq 0 ]; then
    set -- tests/test_kernels.py tests/test_tokenizer_engine.py tests/test_prepared.py tests/test_modern_kernels.py \
        tests/test_modern_exact.py::test_equals_published_code tests/test_exact.py \
        --deselect tests/test_tokenizer_engine.py::test_stored_tables_are_as_derived  # starts a process
fi

for program in qemu-aarch64 mmdebstrap; do
    command -v $program >/dev/null || { echo "$program is missing: apt-get install qemu-user mmdebstrap" >&2; exit 2; }
done

if [ ! -e "$folder/root/usr/bin/python3.11" ]; then
    rm -rf "$folder/root"
    mmdebstrap --variant=extract --arch=arm64 --include=python3,libgomp1,libstdc++6 bookworm "$folder/root"
fi

if [ ! -e "$folder/packages/.complete" ]; then
    rm -rf "$folder/packages"
    python=${PYTHON:-python3}
    install=("$python" -m pip install --quiet --target "$folder/packages" --only-binary=:all:
        --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none)
    for glibc in 2_28 2_27 2_17; do install+=(--platform "manylinux_${glibc}_aarch64"); done
    install+=(--platform manylinux2014_aarch64)
    # Later ARM wheels of torch on PyPI need CUDA's libraries. Of what this one requires, only what follows is used.
    "${install[@]}" --no-deps torch==2.10.0
    grep -v '^torch==' "$repository/constraints.txt" >"$folder/constraints.txt"
    dependencies='import sys, tomllib; found = tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"]
print(*(each for each in found if not each.startswith("torch")), sep="\n")'
    mapfile -t requirements < <("$python" -c "$dependencies" "$repository/pyproject.toml")
    "${install[@]}" --constraint "$folder/constraints.txt" "${requirements[@]}" \
        filelock typing_extensions sympy networkx Jinja2 fsspec pytest pytest-timeout hypothesis transformers
    touch "$folder/packages/.complete"
fi

cd "$repository"
export PYTHONPATH=$repository/src:$folder/packages NUMBA_CACHE_DIR=$folder/machine_code
exec nice -n 15 qemu-aarch64 -L "$folder/root" "$folder/root/usr/bin/python3.11" \
    -m pytest -p no:cacheprovider --timeout 0 --hypothesis-profile ci "$@"  # which may be slow
