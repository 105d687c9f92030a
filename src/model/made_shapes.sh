#!/bin/sh
# made_shapes.sh - configurations as a table in C: made_shapes.sh FOLDER NAME[=FILE]... where FOLDER/FILE.json (else FOLDER/NAME.json) is one.
set -eu
folder=$1
shift
echo '/* made_shapes.c - generated from configurations by made_shapes.sh; do not edit. */'
echo '#include "made.h"'
echo 'const tti_shape tti_shapes[] = {'
for word; do
    file=$folder/${word#*=}.json
    [ -r "$file" ] || { echo "made_shapes.sh: $file is missing" >&2; exit 1; }
    echo "    {\"${word%%=*}\","
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^.*$/     "&\\n"/' "$file"
    echo '    },'
done
echo '    {NULL, NULL},'
echo '};'
