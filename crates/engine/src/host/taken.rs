//! A sound card that is taken from the kernel's driver, until all who play on it have ended.

use crate::{Error, ErrorKind, Result};
use quiet_hda::{BorrowedCard, Card, Fence, LoanWish, room};
use quiet_types::Frames;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// Which card, taken from the kernel's driver where this is made: that takes root's rights, and playing does not. It goes back when
/// the last copy is dropped.
#[derive(Clone)]
pub struct HdaCard {
    card: Arc<Mutex<BorrowedCard>>,
    /// Its PCI address.
    pub(super) address: String,
    pub(super) fence: Fence,
    /// Whether it is to play, and to capture.
    pub(super) ways: HdaWays,
}

/// Directions that are wanted of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HdaWays {
    /// It plays.
    pub plays: bool,
    /// It captures.
    pub captures: bool,
}

/// Who takes a card, and where that is noted.
#[derive(Clone, Debug)]
pub struct HdaWish {
    /// A PCI address, or ALSA's name of the card; without it the only one.
    pub name: Option<String>,
    /// Whether it may be taken where no IOMMU keeps it to its memory.
    pub allow_dma: bool,
    /// Where the old driver is noted.
    pub state: PathBuf,
    /// The program that is started as its guard.
    pub program: PathBuf,
    /// Directions.
    pub ways: HdaWays,
    /// Frames of the longest ring that will be asked for.
    pub buffer: Frames,
}

impl std::fmt::Debug for HdaCard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HdaCard").field("address", &self.address).finish_non_exhaustive()
    }
}

impl PartialEq for HdaCard {
    fn eq(&self, other: &HdaCard) -> bool {
        Arc::ptr_eq(&self.card, &other.card) && self.ways == other.ways
    }
}

/// Memory that is shared at least, so that other buffers can be tried.
const LEAST: usize = 1 << 20;

impl HdaCard {
    /// Takes the card from the kernel's driver.
    ///
    /// # Errors
    /// Why it cannot be had: in use, not alone in its IOMMU group, a driver that is not known.
    pub fn take(wish: &HdaWish) -> Result<HdaCard> {
        let loan = LoanWish {
            name: wish.name.clone(),
            allow_dma: wish.allow_dma,
            state: wish.state.clone(),
            program: wish.program.clone(),
            bytes: room(wish.buffer.0).max(LEAST),
        };
        let card = BorrowedCard::take(&loan)
            .map_err(|e| Error::of(ErrorKind::Device, e.to_string()).because(e))?;
        let (address, fence) = (card.about().address.clone(), card.fence());
        Ok(HdaCard { card: Arc::new(Mutex::new(card)), address, fence, ways: wish.ways })
    }

    /// Gives the card back to the kernel's driver, unless another copy of this has it still; then that one's end does.
    ///
    /// # Errors
    /// What the kernel refused; the note is there then, for `quietcores revert`.
    pub fn give_back(self) -> Result<()> {
        let Some(card) = Arc::into_inner(self.card) else { return Ok(()) };
        let card = card.into_inner().unwrap_or_else(PoisonError::into_inner);
        card.give_back().map_err(|e| Error::of(ErrorKind::Machine, e.to_string()).because(e))
    }

    pub(super) fn lend(&self) -> Option<Card> {
        self.card.lock().unwrap_or_else(PoisonError::into_inner).lend()
    }

    pub(super) fn bring(&self, card: Card) {
        self.card.lock().unwrap_or_else(PoisonError::into_inner).bring(card);
    }
}
