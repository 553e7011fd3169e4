//! Somebody who is put onto a shielded CPU on purpose, as root alone can: a thread of a real-time class that runs 2 ms at a time, and
//! a disk's interrupt.

use super::{Machine, read};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The thread's name.
pub const NAME: &str = "planted-burst";

/// So long it runs each time, by its own clock.
pub const BURST: Duration = Duration::from_millis(2);

/// Runs for 2 ms again and again. Dropped, it is gone, and its group with it.
pub struct Planted {
    child: Child,
    /// A group within the shield's, where there is one.
    group: Option<PathBuf>,
}

impl Planted {
    /// Onto the CPU of this machine that is shielded, where it sleeps until [`Planted::go`]; why not, where that cannot be done.
    pub fn place(machine: &Machine) -> Result<Planted, String> {
        let script = "use Time::HiRes qw(clock_gettime); $0 = shift; <STDIN>; while (1) { \
                      my $end = clock_gettime(2) + 0.002; 1 while clock_gettime(2) < $end; \
                      select(undef, undef, undef, 1.2) }";
        let mut command = Command::new("chrt");
        command.args(["-f", "10", "perl", "-e", script, NAME]).stdin(Stdio::piped());
        let child = command.spawn().map_err(|e| e.to_string())?;
        let mut planted = Planted { child, group: None };
        // What it ran to begin is not part of its burst: faces have seen it by then.
        std::thread::sleep(Duration::from_secs(2));
        planted.enter(machine)?;
        let id = planted.child.id().to_string();
        let moved =
            Command::new("taskset").args(["-p", "-c", &machine.cpu.to_string(), &id]).output();
        let moved = moved.map_err(|e| e.to_string())?;
        if !moved.status.success() {
            return Err(super::text(&moved));
        }
        Ok(planted)
    }

    /// The first burst is now.
    pub fn go(&mut self) {
        if let Some(mut line) = self.child.stdin.take() {
            let _ = line.write_all(b"go\n");
        }
    }

    /// Into a group of its own within the shield's: a thread that the chain knows nothing of.
    fn enter(&mut self, machine: &Machine) -> Result<(), String> {
        let told = machine.json("status");
        let Some(file) = told["shield"]["entry"]["file"].as_str() else { return Ok(()) };
        let door = Path::new(file).parent().ok_or("the shield's group has no folder")?;
        let group = door.join(NAME);
        fs::create_dir(&group).map_err(|e| format!("{}: {e}", group.display()))?;
        self.group = Some(group.clone());
        // cgroup v1 begins with no CPU and no memory.
        for name in ["cpuset.cpus", "cpuset.mems"] {
            if file.ends_with("/tasks") {
                let value = read(door.join(name).to_str().unwrap_or_default());
                fs::write(group.join(name), value.trim()).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        let procs = group.join("cgroup.procs");
        fs::write(&procs, self.child.id().to_string())
            .map_err(|e| format!("{}: {e}", procs.display()))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Some(group) = &self.group else { return };
        // The kernel lets go of who has ended a little later.
        for _ in 0..200 {
            if fs::remove_dir(group).is_ok() || !group.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A disk that is written to, and whose interrupt comes to the shielded CPU. Dropped, the interrupt is where it was.
pub struct Disk {
    file: PathBuf,
    /// By its name in /proc/interrupts.
    pub name: String,
    put_back: Option<(PathBuf, String)>,
}

impl Disk {
    /// The first disk interrupt that comes there, or that can be sent there; `None` where the kernel allows neither.
    pub fn towards(machine: &Machine) -> Option<Disk> {
        let file = machine.dir().join("written");
        let counts = || interrupts(machine.cpu);
        let before = counts();
        write(&file)?;
        let after = counts();
        let grew = |row: &&Row| {
            let then = before.iter().find(|one| one.number == row.number);
            then.is_some_and(|then| then.all < row.all)
        };
        let is_disk = |row: &&Row| {
            ["virtio", "nvme", "ahci", "ata", "scsi", "mmc", "blk", "sd"]
                .iter()
                .any(|word| row.name.contains(word))
        };
        let rows: Vec<&Row> = after.iter().filter(grew).filter(is_disk).collect();
        let there = rows.iter().find(|row| {
            before.iter().any(|then| then.number == row.number && then.here < row.here)
        });
        if let Some(row) = there {
            return Some(Disk { file, name: row.name.clone(), put_back: None });
        }
        rows.iter().find_map(|row| {
            let path = PathBuf::from(format!("/proc/irq/{}/smp_affinity_list", row.number));
            let old = read(path.to_str()?).trim().to_owned();
            fs::write(&path, machine.cpu.to_string()).ok()?;
            let put_back = Some((path, old));
            Some(Disk { file: file.clone(), name: row.name.clone(), put_back })
        })
    }

    /// Something is written through to the disk.
    pub fn write(&self) {
        write(&self.file);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some((path, old)) = &self.put_back {
            let _ = fs::write(path, old);
        }
    }
}

/// Through to the disk, some times.
fn write(path: &Path) -> Option<()> {
    let mut file = fs::File::create(path).ok()?;
    for n in 0..8u8 {
        file.write_all(&[n; 8192]).ok()?;
        file.sync_all().ok()?;
    }
    Some(())
}

struct Row {
    number: u32,
    name: String,
    here: u64,
    all: u64,
}

/// Numbered interrupts, with how often they came to `cpu` and at all.
fn interrupts(cpu: u32) -> Vec<Row> {
    let text = read("/proc/interrupts");
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let Some(column) = head.iter().position(|name| *name == format!("CPU{cpu}")) else {
        return Vec::new();
    };
    let row = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts: Vec<u64> =
            words.by_ref().take(head.len()).filter_map(|n| n.parse().ok()).collect();
        Some(Row {
            number: number.parse().ok()?,
            name: words.last()?.to_owned(),
            here: *counts.get(column)?,
            all: counts.iter().sum(),
        })
    };
    lines.filter_map(row).collect()
}
