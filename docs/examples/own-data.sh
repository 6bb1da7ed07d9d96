#!/bin/sh
# Every command of docs/own-data.md in order, with the seconds each took: sh docs/examples/own-data.sh FOLDER [IDX-FILES]
# `instant` and `python` of the environment must come first on PATH; pip install "instant-ssl[onnx]" for the export.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=${2:+--data=$(cd "$2" && pwd)}
mkdir -p "$1"
cd "$1"

said() {
    echo "\$ $*" | sed "s|$here|docs/examples|"
    began=$(date +%s)
    "$@" 2>&1 || echo "(exit code $?)"
    echo "($(($(date +%s) - began)) s)"
    echo
}

said python "$here/clothes.py" make clothes $data
said instant train clothes/photos/ --labels clothes/labels.csv --out run
said instant train clothes/photos/ --labels clothes/labels.csv method=supervised --out run/baseline
said python "$here/clothes.py" score clothes run
said instant label run clothes/new/ --out new.parquet
said instant label run --out labels.csv
said instant certify run --draw 100 --out todo.csv
said python "$here/clothes.py" check clothes todo.csv
said instant certify run --labels todo.csv 
said instant export run --onnx model.onnx
