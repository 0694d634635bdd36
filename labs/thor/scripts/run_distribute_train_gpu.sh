#!/bin/sh
# Trains by the profile full-gpu on DEVICE_NUM GPUs with Open MPI's mpirun, a process each; see train_parallel/.
set -eu
if [ $# -lt 2 ]; then
  echo "usage: sh run_distribute_train_gpu.sh DATASET_PATH DEVICE_NUM [more arguments of train.py]" >&2
  exit 2
fi
lab=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
data=$1 devices=$2
shift 2
exec mpirun -n "$devices" --output-filename train_parallel/logs --merge-stderr-to-stdout \
  python "$lab/train.py" --data_url "$data" --train_url train_parallel/run --device_target GPU --profile full-gpu "$@"
