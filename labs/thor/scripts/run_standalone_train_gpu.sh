#!/bin/sh
# Trains by the profile full-gpu on one GPU, $DEVICE_ID (0 by default); the Run is left in train/.
set -eu
if [ $# -lt 1 ]; then
  echo "usage: sh run_standalone_train_gpu.sh DATASET_PATH [more arguments of train.py]" >&2
  exit 2
fi
data=$1
shift
exec sh "$(dirname -- "$0")/run_standalone_train.sh" "$data" --device_target GPU --profile full-gpu "$@"
