# What people do daily. `just` lists it.
default:
    @just --list

# One room: its tests
room NAME *WORDS:
    cargo test -p quiet-{{NAME}} {{WORDS}}

# What must be clean before a commit
ready:
    ./test format lints
    cargo test -p quietcores --test house --test docs --test packages
    benches/table --check

# Committed texts anew after a wanted change: schemas, plans, lists of packages, the page of verbs
bless:
    QUIETCORES_BLESS=1 cargo test -p quiet-types --test schemas
    QUIETCORES_BLESS=1 cargo test -p quietcores --test plans --test packages --test docs
    git diff --stat

# Everything but the lab
quick:
    ./test --quick

# Packages for this machine
packages:
    ./release --for amd64

# The book into target/book
book:
    packaging/book
