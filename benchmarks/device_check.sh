#!/bin/sh
# One prepared run for a machine with a CUDA device: build the CUDA ring, run its contract
# tests, print what the machine is. Usage: sh benchmarks/device_check.sh [FOLDER FOR THE REPORT]
# Needs Python 3.10 or newer with nox, a C++ compiler and nvcc; ends with the tests' exit code.
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${1:-.lockgate/device-check}
mkdir -p "$out"

echo "== machine"
"$python" -m ci.devices | tee "$out/devices.txt"
echo "== gpu_smoke: verify, build with CUDA, test"
CUDA_ARCHS=${CUDA_ARCHS:-"80;90"} "$python" -m nox -s gpu_smoke >"$out/gpu_smoke.log" 2>&1
code=$?
tail -n 60 "$out/gpu_smoke.log"
if [ -d .lockgate/report/gpu_smoke ]; then cp -r .lockgate/report/gpu_smoke "$out/"; fi
echo "== gpu_smoke ended with $code; its log and report are in $out"
exit "$code"
