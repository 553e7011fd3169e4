//! `serve`: the stream, the deeds and the history as pages and as JSON over HTTP.
//!
//! [`check`] decides who may, from a request's head alone; [`Doors`] is all that the pages reach of the machine; [`serve`] takes
//! connections, few, bounded and not for long. No file is served: every path is known beforehand.
#![forbid(unsafe_code)]

mod api;
mod app;
mod assets;
mod farm_page;
mod guard;
mod jobs_api;
mod mdns;
mod openapi;
mod pages;
mod runs_page;
mod scrape;
mod server;
mod sound_page;
mod state;
mod tls;
mod tune_page;
mod verbs;
mod verbs_api;

pub use app::app;
pub use guard::{Access, DoorRules, Keys, Turned, check, host_names};
pub use mdns::{LocalName, NameTeller, SaidName};
pub use openapi::openapi;
pub use scrape::{Scrape, ScrapeRules, Scraped, run_metrics};
pub use server::{HttpLimits, run, serve};
pub use state::{Doors, MachineReader};
pub use tls::{MadeCertificate, TlsIdentity};
pub use verbs::{WITHOUT_ADDRESS, addresses};
