//! An authority on the test's own bus that says what a test wants, or never says anything.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};
use zbus::{connection::Builder, interface, wire::OwnedVariant};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Not at all.
    Silent,
    /// Everybody may look; the rest needs a password, which nobody ever types.
    WaitsForPassword,
    /// As this, and the password is typed once the test says so.
    TakesPassword,
}

pub struct Authority {
    temper: Temper,
    /// Dialogues that stand before somebody.
    dialogues: Arc<AtomicU32>,
    cancelled: Arc<AtomicU32>,
    typed: Arc<AtomicBool>,
}

#[interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    async fn check_authorization(
        &self,
        _subject: (String, HashMap<String, OwnedVariant>),
        action: String,
        _details: HashMap<String, String>,
        flags: u32,
        _cancellation: String,
    ) -> (bool, bool, HashMap<String, String>) {
        match self.temper {
            Temper::Silent => std::future::pending().await,
            _ if action.ends_with(".look") => (true, false, HashMap::new()),
            _ if flags & 1 == 0 => (false, true, HashMap::new()),
            Temper::TakesPassword => {
                self.dialogues.fetch_add(1, Ordering::Relaxed);
                while !self.typed.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (true, false, HashMap::new())
            }
            _ => {
                self.dialogues.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
                (true, false, HashMap::new())
            }
        }
    }

    async fn cancel_check_authorization(&self, _cancellation: String) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }
}

/// What has been asked of it so far.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub dialogues: Arc<AtomicU32>,
    pub cancelled: Arc<AtomicU32>,
    pub typed: Arc<AtomicBool>,
}

/// Starts one on the bus at `address`, to the end of the test program.
pub fn start(address: &str, temper: Temper) -> Asked {
    let asked = Asked::default();
    let (dialogues, cancelled) = (asked.dialogues.clone(), asked.cancelled.clone());
    let typed = asked.typed.clone();
    let address = address.to_owned();
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let authority = Authority { temper, dialogues, cancelled, typed };
            let _bus = Builder::address(address.as_str())
                .serve_at("/org/freedesktop/PolicyKit1/Authority", authority)
                .name("org.freedesktop.PolicyKit1")
                .build()
                .await
                .unwrap();
            ready.send(()).unwrap();
            // With its bus it ends.
            tokio::time::sleep(Duration::from_secs(600)).await;
        });
    });
    is_ready.recv().unwrap();
    asked
}
