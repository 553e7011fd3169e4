//! Who calls and whose turn it is: a place among those that wait, and one act at a time.

use crate::Error;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// How many calls of one user may be at work or wait.
const OF_ONE_USER: u32 = 4;
/// Of all.
const OF_ALL: usize = 64;
/// How many wait for a person who is asked for a password.
const DIALOGUES: usize = 16;
/// How many watches and traces may be at work.
const WATCHES: usize = 8;
/// Of one user's.
const WATCHES_OF_ONE: u32 = 4;
/// So long a call waits for those before it.
const PATIENCE: Duration = Duration::from_millis(900);

/// What each user has: how many places, and the turn among his own calls.
type Users = HashMap<u32, (u32, Arc<Turn<()>>)>;

/// The calls that wait, and the one that is at work.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// One act at a time: the journal has one writer.
    turn: Arc<Turn<()>>,
    places: Arc<Semaphore>,
    at_work: Arc<Mutex<Users>>,
    dialogues: Arc<Semaphore>,
    asked: Arc<Mutex<Users>>,
    watches: Arc<Semaphore>,
    watched: Arc<Mutex<Users>>,
}

/// A caller's place among those at work, those who are asked, or those who watch; given back when dropped, also when the caller's call is
/// cancelled.
#[derive(Debug)]
pub(crate) struct Place {
    uid: u32,
    among: Arc<Mutex<Users>>,
    own: Arc<Turn<()>>,
    _of_all: OwnedSemaphorePermit,
}

impl Place {
    fn take(
        uid: u32,
        (places, among): (&Arc<Semaphore>, &Arc<Mutex<Users>>),
        most: u32,
    ) -> Result<Place, Error> {
        let many = || Error::Busy("too many calls wait already: try again".into());
        let of_all = places.clone().try_acquire_owned().map_err(|_| many())?;
        let mut counts = among.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, own) = counts.entry(uid).or_default();
        if *count >= most {
            return Err(many());
        }
        *count += 1;
        Ok(Place { uid, among: among.clone(), own: own.clone(), _of_all: of_all })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.among.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// A call's turn, given back when dropped.
#[derive(Debug)]
pub(crate) struct CallTurn {
    _of_all: OwnedMutexGuard<()>,
    _own: OwnedMutexGuard<()>,
}

impl Queue {
    /// With nobody in it.
    pub fn new() -> Queue {
        Queue {
            turn: Arc::default(),
            places: Arc::new(Semaphore::new(OF_ALL)),
            at_work: Arc::default(),
            dialogues: Arc::new(Semaphore::new(DIALOGUES)),
            asked: Arc::default(),
            watches: Arc::new(Semaphore::new(WATCHES)),
            watched: Arc::default(),
        }
    }

    /// A place for a call of user `uid`.
    ///
    /// # Errors
    /// When he has too many already, or all have.
    pub fn place(&self, uid: u32) -> Result<Place, Error> {
        Place::take(uid, (&self.places, &self.at_work), OF_ONE_USER)
    }

    /// A place for user `uid` while he is asked for a password: one at a time, and none of those that work needs.
    ///
    /// # Errors
    /// When he is asked already, or too many are.
    pub fn dialogue(&self, uid: u32) -> Result<Place, Error> {
        Place::take(uid, (&self.dialogues, &self.asked), 1)
    }

    /// A place for a watch or a trace of user `uid`, for as long as that is at work.
    ///
    /// # Errors
    /// When he has too many, or all have.
    pub fn watch(&self, uid: u32) -> Result<Place, Error> {
        Place::take(uid, (&self.watches, &self.watched), WATCHES_OF_ONE).map_err(|_| {
            Error::Busy(format!(
                "{WATCHES_OF_ONE} watches and traces of one user, and {WATCHES} of all, may be at work: end one of them"
            ))
        })
    }

    /// The turn, for a caller who does not wait for ever. A user's calls wait for each other first: another's waits for one of them.
    ///
    /// # Errors
    /// When others keep it for too long.
    pub async fn turn(&self, place: &Place) -> Result<CallTurn, Error> {
        let both = async {
            let own = place.own.clone().lock_owned().await;
            CallTurn { _of_all: self.own_turn().await, _own: own }
        };
        tokio::time::timeout(PATIENCE, both)
            .await
            .map_err(|_| Error::Busy("the service is at work for somebody: try again".into()))
    }

    /// The turn, for the service itself, where nobody has it.
    pub fn free_turn(&self) -> Option<OwnedMutexGuard<()>> {
        self.turn.clone().try_lock_owned().ok()
    }

    /// The turn, for the service itself.
    pub async fn own_turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }
}
