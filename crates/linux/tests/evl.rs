//! libevl as it is found at run time, on a kernel without its core: a library of ours with the same few names stands where it would.
//! What the core itself does is seen on a kernel that has one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::{
    evl::NoEvl,
    sys::{
        clock,
        evl::{Closed, open},
    },
};
use quiet_testing::{Why, skip};
use std::{path::Path, process::Command};

/// Makes the library, and runs `test` of this program where it is found.
fn with_library(test: &str, flags: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/evl.c");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.path().join("libevl.so.4"))
        .args(flags)
        .arg(source)
        .output();
    let Ok(made) = made else {
        return skip(Why::Program("cc", "gcc"));
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // A process of its own: a library that was found, or was not, stays so.
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", dir.path())
        .env("QUIETCORES_TEST_EVL", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
}

fn is_inner() -> bool {
    std::env::var_os("QUIETCORES_TEST_EVL").is_some()
}

fn words(closed: Closed) -> String {
    NoEvl::Library(closed).to_string()
}

#[test]
fn the_librarys_functions_do_what_they_are_taken_for() {
    if !is_inner() {
        return with_library("the_librarys_functions_do_what_they_are_taken_for", &["-DINIT=0"]);
    }
    let library = open().unwrap();
    assert_eq!(library.counted().unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(library.sleep_until(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(library.attach(c"another").unwrap_err().raw_os_error(), Some(libc::EINVAL));
    library.attach(c"quietcores:1").unwrap();
    assert_eq!(library.attach(c"quietcores:1").unwrap_err().raw_os_error(), Some(libc::EBUSY));
    let counted = library.counted().unwrap();
    assert!(counted.is_in_band && (counted.in_band, counted.switches) == (0, 0), "{counted:?}");
    library.switch_oob().unwrap();
    let counted = library.counted().unwrap();
    assert!(!counted.is_in_band && (counted.in_band, counted.switches) == (0, 1), "{counted:?}");
    let before = clock::monotonic();
    let (at, until) = (library.monotonic(), before + 5_000_000);
    library.sleep_until(until).unwrap();
    let after = clock::monotonic();
    assert!(before <= at && until <= after && at <= library.monotonic(), "{before} {at} {after}");
    library.detach().unwrap();
    assert_eq!(library.detach().unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn a_core_of_another_kind_is_named() {
    if !is_inner() {
        return with_library("a_core_of_another_kind_is_named", &["-DINIT=-ENOEXEC"]);
    }
    let closed = open().unwrap_err();
    assert_eq!(closed, Closed::Refused(libc::ENOEXEC));
    assert!(words(closed).contains("different ABI levels"));
}

#[test]
fn a_kernel_without_a_core_is_named() {
    if !is_inner() {
        return with_library("a_kernel_without_a_core_is_named", &["-DINIT=-ENOSYS"]);
    }
    let closed = open().unwrap_err();
    assert_eq!(closed, Closed::Refused(libc::ENOSYS));
    assert!(words(closed).contains("CONFIG_EVL"));
}

#[test]
fn a_function_that_is_missing_is_named() {
    if !is_inner() {
        return with_library("a_function_that_is_missing_is_named", &["-DINIT=0", "-DLACKS"]);
    }
    let closed = open().unwrap_err();
    assert_eq!(closed, Closed::Lacks("evl_switch_oob"));
    assert!(words(closed).contains("evl_switch_oob"));
}

#[test]
fn a_library_that_is_not_there_is_said_in_the_loaders_words() {
    if Path::new("/usr/evl/lib/libevl.so").exists() {
        return skip(Why::Machine("libevl is installed".to_owned()));
    }
    match open() {
        Err(Closed::Missing(why)) => {
            let words = words(Closed::Missing(why));
            assert!(words.contains("libevl") && words.contains("evlproject.org"), "{words}");
        }
        Ok(_) => skip(Why::Machine("libevl is installed".to_owned())),
        other => panic!("{other:?}"),
    }
}
