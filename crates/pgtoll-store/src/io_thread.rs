//! The one thread that does I/O, with an asynchronous runtime that nothing outside of this crate sees.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use pgtoll_system::Interrupt;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

/// Hands work to the thread.
#[derive(Clone, Debug)]
pub(crate) struct IoThread(Handle);

/// An answer that the thread will give. Dropping it ends the work on it.
#[derive(Debug)]
pub(crate) struct PendingAnswer<T> {
    receiver: Receiver<T>,
    task: AbortHandle,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    Interrupted,
    Ended,
}

impl IoThread {
    /// The thread, which is started when it is asked for first; `None` where the system gives none.
    pub(crate) fn running() -> Option<Self> {
        static THREAD: OnceLock<Option<IoThread>> = OnceLock::new();
        THREAD.get_or_init(Self::start).clone()
    }

    fn start() -> Option<Self> {
        // The one provider of cryptography in pgtoll; another that is installed is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (sender, receiver) = sync_channel(1);
        let run = move || {
            let Ok(runtime) = Builder::new_current_thread().enable_io().enable_time().build()
            else {
                return;
            };
            if sender.send(runtime.handle().clone()).is_ok() {
                // Its end is the program's.
                runtime.block_on(std::future::pending::<()>());
            }
        };
        thread::Builder::new().name("store".into()).spawn(run).ok()?;
        receiver.recv().ok().map(Self)
    }

    /// Begins the work.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PendingAnswer<T> {
        let (sender, receiver): (SyncSender<T>, _) = sync_channel(1);
        let task = self.0.spawn(async move {
            // Who asked may be gone.
            let _ = sender.send(work.await);
        });
        PendingAnswer { receiver, task: task.abort_handle() }
    }
}

impl<T> PendingAnswer<T> {
    /// Waits for the answer, or a signal.
    pub(crate) fn wait(&self, interrupt: &Interrupt) -> Result<T, NoAnswer> {
        loop {
            if interrupt.signal().is_some() {
                return Err(NoAnswer::Interrupted);
            }
            match self.receiver.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Ended),
            }
        }
    }
}

impl<T> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(100);
