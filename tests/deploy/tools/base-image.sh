#!/bin/sh
# Make localhost/tokenwire-base: Debian with Python, where no registry of images can be reached. As root.
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip trixie "$folder" >&2
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/usr/share/doc/* \
    "$folder"/usr/share/man/* "$folder"/usr/share/locale/* "$folder"/usr/lib/python3*/EXTERNALLY-MANAGED
tar -C "$folder" -c . | podman import - localhost/tokenwire-base:trixie
