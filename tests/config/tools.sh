# Tools that read config/, each in its version, kept in a cache of their own. Sourced by `run`.
#
# A tool that can't be had here is told on a line of its own with what is left out for it, and its name stays empty.

tools=${XDG_CACHE_HOME:-$HOME/.cache}/spanplane-tools
PATH=$PATH:/usr/local/go/bin

left_out() { echo "config: LEFT OUT: $*"; }

# Installs a program of a Go module unless it is there, and prints its path.
go_program() {
  local name=${1##*/} folder=$tools/${1##*/}@$2
  [ -x "$folder/$name" ] || GOBIN=$folder go install "$1@$2" >&2 || return 1
  echo "$folder/$name"
}

# The same for a module that not every copy of Go's index and checksum database knows: its sums are told here.
go_program_by_sum() {
  local name=${1##*/} folder=$tools/${1##*/}@$2
  if [ ! -x "$folder/$name" ]; then
    mkdir -p "$folder"
    printf 'module tool\ngo 1.23\nrequire %s %s\n' "$1" "$2" >"$folder/go.mod"
    printf '%s %s %s\n' "$1" "$2" "$3" "$1" "$2/go.mod" "$4" >"$folder/go.sum"
    (cd "$folder" && go build -mod=mod -o "$name" "$1") >&2 || return 1
  fi
  echo "$folder/$name"
}

# From a package of the distribution's, which need not be installed for that.
debian_prometheus() {
  local folder=$tools/prometheus
  if [ ! -x "$folder/usr/bin/promtool" ]; then
    local package
    package=$(mktemp -d)
    (cd "$package" && apt-get download prometheus >/dev/null 2>&1 && dpkg -x ./*.deb "$folder") || return 1
    rm -rf "$package"
  fi
  echo "$folder/usr/bin"
}

# Crossplane's chart and CRDs, as they were released.
crossplane_cluster() {
  local module
  module=$(cd "$tools" && go mod download -json "github.com/crossplane/crossplane/v2@$1" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])') || return 1
  echo "$module/cluster"
}

grafana_types() {
  local folder=$tools/grafana-schema@$1
  if [ ! -d "$folder/node_modules" ]; then
    npm install --silent --no-audit --no-fund --prefix "$folder" typescript@5.9.3 "@grafana/schema@$1" >&2 || return 1
  fi
  echo "$folder"
}

find_tools() {
  python=$tools/config-venv/bin/python
  [ -x "$python" ] || python3 -m venv "$tools/config-venv"
  "$python" -m pip install --quiet --disable-pip-version-check --requirement "$root/tests/config/requirements.txt"

  cluster='' helm='' actionlint='' linter='' prometheus='' grafana=''
  if command -v go >/dev/null; then
    cluster=$(crossplane_cluster v2.2.1) || cluster=''
    helm=$(go_program helm.sh/helm/v3/cmd/helm v3.22.0) || helm=''
    actionlint=$(go_program github.com/rhysd/actionlint/cmd/actionlint v1.7.12) || actionlint=''
    # The last one that does not need Grafana's own modules.
    linter=$(go_program_by_sum github.com/grafana/dashboard-linter v0.0.0-20241224134444-1765d94aec4a \
      h1:wpyAYX8+Rqu0LIEE7zXBR/qjBH4t0yXvqlRGa1wD5rg= h1:aeONzEz1tWGxQvxYm5DFxxaJ90JINhRT50TrZ0oXuJM=) || linter=''
  fi
  if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    prometheus=$(dirname "$(command -v promtool)")
  elif command -v apt-get >/dev/null; then
    prometheus=$(debian_prometheus) || prometheus=''
  fi
  if command -v npm >/dev/null; then
    grafana=$(grafana_types 10.4.19) || grafana=''
  fi
}
