#!/bin/sh
# Trains on the Ascend cards of a rank table, a process each; Run and logs are left in train_parallel/.
# Rank 0 alone writes, so there is one folder and not one a card; and it stays in the foreground: add & yourself.
set -eu
if [ $# -lt 3 ]; then
  echo "usage: sh run_distribute_train.sh RANK_TABLE_FILE DATASET_PATH DEVICE_NUM [more arguments of train.py]" >&2
  exit 2
fi
lab=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
table=$1 data=$2 devices=$3
shift 3
exec python -m labkit launch -n "$devices" --device-target Ascend --rank-table "$table" --log-dir train_parallel/logs \
  "$lab/train.py" --data_url "$data" --train_url train_parallel/run "$@"
