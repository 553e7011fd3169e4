//! A plugin of QEMU's user emulation that prints how many instructions a program took, as the last line of standard error:
//! `instructions: 123`. What a block of translated code holds is added each time that it is entered. One thread is counted.
//! Source: QEMU 7.2's docs/devel/tcg-plugins.rst and include/qemu/qemu-plugin.h, whose functions are declared here; from 9.0 on
//! a plugin counts otherwise.
//!   rustc -O --edition 2024 --crate-type cdylib -o instructions.so instructions.rs
//!   qemu-aarch64 -plugin ./instructions.so PROGRAM...      (of Debian 12's qemu-user; later ones take no plugins)

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
const ADD: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(plugin: u64, call: extern "C" fn(u64, *mut c_void));
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_register_vcpu_tb_exec_inline(block: *mut c_void, what: c_int, counter: *mut u64, value: u64);
    fn qemu_plugin_register_atexit_cb(plugin: u64, call: extern "C" fn(u64, *mut c_void), data: *mut c_void);
}

/// The version of the interface.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

extern "C" fn translated(_: u64, block: *mut c_void) {
    // SAFETY: QEMU owns the block for the time of this call; the counter lives as long as the emulator.
    unsafe {
        let count = qemu_plugin_tb_n_insns(block) as u64;
        qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, COUNT.as_ptr(), count);
    }
}

extern "C" fn ended(_: u64, _: *mut c_void) {
    eprintln!("instructions: {}", COUNT.load(Ordering::Relaxed));
}

/// QEMU calls it once, before the program begins.
#[unsafe(no_mangle)]
pub extern "C" fn qemu_plugin_install(plugin: u64, _: *const c_void, _: c_int, _: *mut *mut c_char) -> c_int {
    // SAFETY: these functions may be called while a plugin is installed; the calls last as long as the emulator.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
        qemu_plugin_register_atexit_cb(plugin, ended, null_mut());
    }
    0
}
