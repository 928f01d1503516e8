//! The policies in force, and those that could not be taken into force.

use std::{pin::pin, sync::Arc};

use super::{PolicyGate, Rules, RulesError};

impl PolicyGate {
    /// Puts new policies in force for every call that is decided from now on.
    pub fn replace_rules(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
        self.refused_rules.store(None);
        self.read.notify_waiters();
    }

    /// Goes on with the policies in force, and remembers why the new ones can't be used.
    pub fn refuse_rules(&self, error: RulesError) {
        self.refused_rules.store(Some(Arc::new(error)));
        self.read.notify_waiters();
    }

    /// Why the policies that were read last are not those in force.
    pub fn refused_rules(&self) -> Option<Arc<RulesError>> {
        self.refused_rules.load_full()
    }

    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Whether the policies in force were read with this tool in mind. Until they are, nobody may call it.
    pub fn knows(&self, tool: &str) -> bool {
        self.rules.load().know(tool)
    }

    /// Waits until `holds` of policies that were read. Where those that were read last are refused it does not wait: an
    /// operator has to mend them first.
    pub async fn until_read(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut read = pin!(self.read.notified());
            read.as_mut().enable();
            if holds(self) || self.refused_rules.load().is_some() {
                return;
            }
            read.await;
        }
    }
}
