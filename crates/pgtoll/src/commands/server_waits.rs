//! Waiting for servers: a signal ends it.

use anyhow::Context as _;
use pgtoll_system::{Interrupt, Registered};
use pgtoll_wire::{Dsn, Interruption};

/// As long as it lives, the first signal ends all waiting on the connections that it was given to.
#[derive(Debug)]
pub(crate) struct ServerWaits {
    interruption: Interruption,
    _registered: Registered,
}

impl ServerWaits {
    pub(crate) fn until(interrupt: &Interrupt) -> anyhow::Result<Self> {
        let interruption = Interruption::new().context("make a pair of sockets")?;
        let on_signal = interruption.clone();
        let registered = interrupt.on_signal(move || on_signal.interrupt());
        Ok(Self { interruption, _registered: registered })
    }

    /// Returns the interruption that ends waits of connections.
    pub(crate) fn interruption(&self) -> &Interruption {
        &self.interruption
    }

    /// The same server; a signal ends its connections' waiting.
    pub(crate) fn limit_waits(&self, dsn: &Dsn) -> Dsn {
        dsn.with_interruption(&self.interruption)
    }
}
