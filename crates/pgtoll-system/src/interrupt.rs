//! Ctrl-C and its relatives: whether a signal asked this process to end, and what ends waits then.
//!
//! ```
//! use std::time::Duration;
//!
//! use pgtoll_system::Interrupt;
//!
//! let interrupt = Interrupt::new();
//! interrupt.catch_signals()?;
//! // Comes back early, with an error, after Ctrl-C.
//! interrupt.wait(Duration::from_millis(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by {signal}")]
pub struct Interrupted {
    /// The signal's name, such as `SIGINT`.
    pub signal: &'static str,
}

/// Whether a signal asked this process to end. Cheap to clone, cheap to ask.
///
/// Long waits (a program that the guard runs, pip) register what ends them, so that a signal does
/// not have to wait for them.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    signal: AtomicI32,
    next_hook: AtomicU64,
    hooks: Mutex<Vec<(u64, Hook)>>,
    /// Goes with `hooks`.
    came: Condvar,
}

type Hook = Box<dyn Fn() + Send>;

impl Interrupt {
    /// One that no signal reaches yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on SIGINT, SIGTERM and SIGHUP set the flag and run the hooks; a second one ends
    /// the process at once with status 2 (what is left to stop is the guard's, and it will).
    pub fn catch_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let this = self.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 {
                    signal_hook::low_level::exit(2);
                }
                this.set(signal);
            }
        })?;
        Ok(())
    }

    /// As if SIGTERM had come: ends what waits for a signal, from within the process.
    pub fn trigger(&self) {
        self.set(SIGTERM);
    }

    fn set(&self, signal: i32) {
        self.0.signal.store(signal, Ordering::SeqCst);
        for (_, hook) in self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            hook();
        }
        self.0.came.notify_all();
    }

    /// Lets `time` go by; an error, at once, when a signal comes or came.
    pub fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        let until = Instant::now() + time;
        let mut hooks = self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.0.came.wait_timeout(hooks, left);
            hooks = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The signal that came, by name.
    pub fn signal(&self) -> Option<&'static str> {
        let number = self.0.signal.load(Ordering::SeqCst);
        (number != 0).then(|| Signal::try_from(number).map_or("a signal", Signal::as_str))
    }

    /// An error when a signal came.
    pub fn check(&self) -> Result<(), Interrupted> {
        self.signal().map_or(Ok(()), |signal| Err(Interrupted { signal }))
    }

    /// Runs `hook` (in the signals' thread) when a signal comes while the result lives, or at once
    /// when one came before.
    pub fn on_signal(&self, hook: impl Fn() + Send + 'static) -> Registered {
        let id = self.0.next_hook.fetch_add(1, Ordering::SeqCst);
        let mut hooks = self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.signal().is_some() {
            hook();
        }
        hooks.push((id, Box::new(hook)));
        Registered { interrupt: self.clone(), id }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&self.signal()).finish()
    }
}

/// A hook stays registered as long as this lives.
#[must_use]
#[derive(Debug)]
pub struct Registered {
    interrupt: Interrupt,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let hooks = &self.interrupt.0.hooks;
        hooks.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}
