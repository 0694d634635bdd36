#!/bin/sh
# Trains on one Ascend card, $DEVICE_ID (0 by default); the Run is left in train/.
set -eu
if [ $# -lt 1 ]; then
  echo "usage: sh run_standalone_train.sh DATASET_PATH [more arguments of train.py]" >&2
  exit 2
fi
lab=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
data=$1
shift
export DEVICE_ID="${DEVICE_ID:-0}"
exec python "$lab/train.py" --data_url "$data" --train_url train --device_target Ascend "$@"
