#!/bin/sh
# Copy the minified files of uPlot, which draws the charts of the status page, and its license from npm.
set -eu
VERSION=1.6.32
cd "$(dirname "$0")/../coordinator/api/status_page/vendor/uplot"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
npm pack "uplot@$VERSION" --silent --pack-destination "$temporary" >/dev/null
tar -xzf "$temporary"/*.tgz -C "$temporary"
for name in dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE; do
    install -m 644 "$temporary/package/$name" .
done
