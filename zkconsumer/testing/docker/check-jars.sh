#!/bin/sh
# check-jars.sh LOCK FOLDER: ends with status 0 if FOLDER holds exactly the jars of the lock file.
# A line of the lock: group:artifact:version[:classifier] sha256 size
set -eu
lock=$1
folder=$2
sums=$(awk 'NF {
    parts = split($1, name, ":")
    file = name[2] "-" name[3] (parts > 3 ? "-" name[4] : "") ".jar"
    print $2 "  " file
}' "$lock")
(cd "$folder" && printf '%s\n' "$sums" | sha256sum -c --quiet -)
wanted=$(printf '%s\n' "$sums" | wc -l)
found=$(find "$folder" -name '*.jar' | wc -l)
if [ "$wanted" -ne "$found" ]; then
    echo "$folder holds $found jars, $lock names $wanted" >&2
    exit 1
fi
