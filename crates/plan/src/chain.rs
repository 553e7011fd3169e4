//! Chain files.
