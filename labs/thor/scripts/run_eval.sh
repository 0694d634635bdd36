#!/bin/sh
# Evaluates a checkpoint, or a Run, on one Ascend card, $DEVICE_ID (0 by default).
set -eu
if [ $# -lt 2 ]; then
  echo "usage: sh run_eval.sh DATASET_PATH CHECKPOINT_PATH [more arguments of eval.py]" >&2
  exit 2
fi
lab=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
data=$1 checkpoint=$2
shift 2
export DEVICE_ID="${DEVICE_ID:-0}"
exec python "$lab/eval.py" --data_url "$data" --checkpoint_path "$checkpoint" --device_target Ascend "$@"
