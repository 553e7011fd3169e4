//! What stands around a chain, read from a tree that holds it and from the machine itself.
#![allow(clippy::unwrap_used)]

use quiet_linux::{Options, Root, capture, snapshot};
use quiet_testing::tree::put;
use quiet_types::{
    Machine,
    surroundings::{AudioGroup, Surroundings},
};
use std::{fs, os::unix::fs::symlink, path::Path};

fn read(dir: &Path) -> (Machine, Surroundings) {
    put(dir, "proc/version", "");
    put(dir, "sys/devices/system/cpu/online", "0-1\n");
    let machine = snapshot(&Root::at(dir).unwrap(), Options::default()).unwrap();
    assert_eq!(machine.unread, []);
    let around = machine.surroundings.clone().unwrap();
    (machine, around)
}

#[test]
fn the_caller_is_read_with_limits_groups_and_capabilities() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(
        root,
        "proc/self/status",
        "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t29 44\n\
         CapEff:\t0000000000800000\n",
    );
    put(
        root,
        "proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes\n\
         Max realtime priority     95                   95\n\
         Max realtime timeout      200000               200000               us\n",
    );
    put(root, "etc/group", "root:x:0:\naudio:x:29:anna,otto\nrealtime:x:970:\n");
    let caller = read(root).1.caller.unwrap();
    assert_eq!((caller.uid, caller.cap_sys_nice, caller.cap_ipc_lock), (1000, true, false));
    assert_eq!((caller.rtprio, caller.memlock, caller.rttime), (Some(95), None, Some(200_000)));
    let group = |name: &str, gid, member| AudioGroup { name: name.into(), gid, member };
    assert_eq!(caller.groups, [group("audio", 29, true), group("realtime", 970, false)]);
}

#[test]
fn devices_files_mounts_and_timers_are_read_from_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "dev/kmsg", "Unknown kernel command line parameters \"isolcpu=1\"\n");
    fs::write(root.join("dev/cpu_dma_latency"), 20_i32.to_ne_bytes()).unwrap();
    put(root, "dev/cpu/0/msr", "");
    fs::write(root.join("dev/cpu/0/msr"), 77_u64.to_ne_bytes()).unwrap();
    put(root, "proc/self/mounts", "nas:/m /mnt/m nfs4 rw,noatime 0 0\n");
    put(root, "proc/uptime", "3600.51 7000.00\n");
    put(root, "run/systemd/system/x", "");
    put(root, "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.4-1.so", "");
    put(root, "etc/systemd/system/timers.target.wants/fwupd-refresh.timer", "");
    put(root, "etc/systemd/system/timers.target.wants/README", "");
    put(root, "etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=2-3\n");
    let around = read(root).1;
    assert_eq!(around.kernel_log.unwrap().len(), 1);
    assert_eq!((around.dma_latency_us, around.dma_latency_writable), (Some(20), Some(true)));
    assert_eq!((around.smi_count, around.uptime_s), (Some(77), Some(3_600)));
    assert_eq!((around.mounts[0].kind.as_str(), around.systemd), ("nfs4", Some(257)));
    assert_eq!(around.timers, ["fwupd-refresh.timer"]);
    assert_eq!(around.files["etc/default/irqbalance"], "IRQBALANCE_BANNED_CPULIST=2-3");
}

#[test]
fn of_loader_files_only_parameters_are_kept_and_credentials_are_masked() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(
        root,
        "etc/default/grub",
        "GRUB_PASSWORD=hunter2\nGRUB_CMDLINE_LINUX=\"isolcpus=1 rd.luks.key=/root/k quiet\"\n",
    );
    put(root, "etc/kernel/cmdline", "root=/dev/sda1 netconsole.token=abc isolcpus=1\n");
    let files = read(root).1.files;
    let all = format!("{files:?}");
    assert!(files["etc/default/grub"].contains("isolcpus=1"), "{all}");
    assert!(files["etc/kernel/cmdline"].contains("isolcpus=1"), "{all}");
    for secret in ["hunter2", "/root/k", "abc"] {
        assert!(!all.contains(secret), "{secret} stands in {all}");
    }
}

#[test]
fn usb_devices_are_found_with_their_controllers() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (one, two) = ("sys/devices/pci0000:00/0000:00:14.0", "sys/devices/pci0000:00/0000:02:00.0");
    put(root, &format!("{one}/usb1/1-2/product"), "Scarlett\n");
    put(root, &format!("{one}/usb1/1-2/manufacturer"), "Focusrite\n");
    put(root, &format!("{one}/usb1/1-2/power/control"), "auto\n");
    put(root, &format!("{one}/usb1/1-3/bDeviceClass"), "09\n");
    put(root, &format!("{two}/usb2/bDeviceClass"), "09\n");
    let bus = root.join("sys/bus/usb/devices");
    fs::create_dir_all(&bus).unwrap();
    for (name, to) in [
        ("usb1", format!("{one}/usb1")),
        ("usb2", format!("{two}/usb2")),
        ("1-2", format!("{one}/usb1/1-2")),
        ("1-3", format!("{one}/usb1/1-3")),
    ] {
        symlink(format!("/{to}"), bus.join(name)).unwrap();
    }
    let usb = read(root).1.usb;
    assert_eq!(usb.len(), 2);
    assert_eq!((usb[0].path.as_str(), usb[0].devices.len()), (&*format!("/{one}"), 1));
    assert_eq!(usb[0].devices[0].name, "Focusrite Scarlett");
    assert_eq!(usb[0].devices[0].power_control.as_deref(), Some("auto"));
    assert!(usb[1].devices.is_empty());
}

#[test]
fn absurd_files_are_no_facts_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (path, text) in [
        ("proc/uptime", "-3 nan"),
        ("proc/self/status", "Uid:\tx"),
        ("proc/self/limits", "Max realtime priority"),
        ("proc/self/mounts", "a\n\n b c"),
        ("dev/cpu_dma_latency", "12345"),
        ("dev/cpu/0/msr", ""),
        ("etc/group", "audio:x\n:::\naudio:x:999999999999:\n"),
    ] {
        put(root, path, text);
    }
    let around = read(root).1;
    assert_eq!((around.uptime_s, around.caller, around.smi_count), (None, None, None));
    assert_eq!(around.dma_latency_us, None);
}

#[test]
fn this_machine_is_read_and_its_capture_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("here");
    let live = capture(&Root::system().unwrap(), &dir, Options::default()).unwrap().machine;
    let around = live.surroundings.clone().unwrap();
    let caller = around.caller.as_ref().unwrap();
    assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
    assert!(around.mounts.iter().any(|mount| mount.path == "/"));
    assert!(around.uptime_s.is_some());
    let again = snapshot(&Root::at(&dir).unwrap(), Options::default()).unwrap();
    assert_eq!(again.surroundings.unwrap(), around);
}
