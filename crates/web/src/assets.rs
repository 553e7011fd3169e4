//! What pages are made of beside themselves.

pub(crate) const STYLE: &str = include_str!("assets/page.css");
pub(crate) const SCRIPT: &str = include_str!("assets/live.js");
pub(crate) const SOUND: &str = include_str!("assets/sound.js");
pub(crate) const JOBS: &str = include_str!("assets/jobs.js");
pub(crate) const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#14532d"/><path d="M5 16h5l2-6 4 13 3-9 2 2h6" fill="none" stroke="#bbf7d0" stroke-width="2.5" stroke-linejoin="round" stroke-linecap="round"/></svg>"##;
