//! Which USB device a kernel file belongs to: another one may be plugged in at the same place, and has the same files.

use quiet_linux::Kernel;
use quiet_types::{GroupPath, printable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A USB device, from when it is plugged in until it is pulled out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plugged {
    /// Its number on the bus. The one that is plugged in next has another one, be it the same device.
    pub number: String,
    /// Numbers of maker and product.
    pub vendor: String,
    pub product: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

impl fmt::Display for Plugged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str| printable(text, 40);
        write!(f, "{}:{}", part(&self.vendor), part(&self.product))?;
        match &self.serial {
            Some(serial) => write!(f, " {}", part(serial)),
            None => Ok(()),
        }
    }
}

impl Plugged {
    /// The device that the kernel file `path` belongs to now; `None` where that is no USB device.
    ///
    /// # Source
    /// `devnum`, `idVendor`, `idProduct`, `serial`: drivers/usb/core/sysfs.c. Numbers are given in turn (`choose_devnum`,
    /// drivers/usb/core/hub.c); a reset keeps them.
    pub fn at(kernel: &dyn Kernel, path: &str) -> Option<Plugged> {
        let file: GroupPath = path.parse().ok()?;
        let is_on_bus = |dir: &GroupPath| dir.starts_with("/sys/devices/") && dir.contains("/usb");
        let mut above = file.ancestors().skip(1).take_while(is_on_bus);
        above.find_map(|dir| {
            let text = |name: &str| {
                let text = kernel.read(&dir.join(name)).ok()?;
                Some(text.trim_end_matches('\n').to_owned())
            };
            Some(Plugged {
                number: text("devnum")?,
                vendor: text("idVendor").unwrap_or_default(),
                product: text("idProduct").unwrap_or_default(),
                serial: text("serial"),
            })
        })
    }

    /// What is said of the device at `path` where it is not this one; `None` where it is.
    pub fn replaced(&self, kernel: &dyn Kernel, path: &str) -> Option<String> {
        match Plugged::at(kernel, path) {
            Some(now) if now == *self => None,
            Some(now) if Plugged { number: self.number.clone(), ..now.clone() } == *self => {
                Some(format!("the USB device {self} was plugged in anew since"))
            }
            Some(now) => Some(format!("another USB device is there now, {now}; it was {self}")),
            None => Some(format!("the USB device {self} is there no more")),
        }
    }
}
