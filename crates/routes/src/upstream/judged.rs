//! What a server lists, and which of it an operator stands by.

use std::sync::Arc;

use aegis_core::upstream::PinError;
use aegis_mcp_client::{Client, Error, Listed};

use super::{
    World,
    definition::{self, Sound, Unsound},
    server::{Offered, Server},
};

impl Server {
    /// Reads what the server offers, and asks which of it is accepted.
    pub(super) async fn list(&self, world: &World, client: &Client) -> Result<(), Error> {
        if client.facts().is_some_and(|facts| !facts.can("tools", None)) {
            self.offer(Offered::default());
            return Ok(());
        }
        let entries = client.list(Listed::Tools).await?;
        let mut sound: Vec<Sound> = Vec::new();
        let mut unsound: Vec<Unsound> = Vec::new();
        let redactor = world.redactor();
        for entry in &entries {
            let entry = definition::cleaned(&redactor, entry);
            match definition::read(&self.config, &entry, &|name| world.catalog.built_in(name)) {
                Ok(one) if sound.iter().any(|known| known.spec.name == one.spec.name) => {
                    unsound.push(Unsound {
                        tool: one.tool.clone(),
                        name: Some(one.spec.name.to_string()),
                        reason: "the server lists two tools of this name; the first one counts".into(),
                        left_out: false,
                    });
                }
                Ok(one) => sound.push(one),
                Err(one) => unsound.push(one),
            }
            // Compiling hundreds of schemas must not keep a worker from everyone else.
            tokio::task::consume_budget().await;
        }
        let _turn = self.judging.lock().await;
        let before = self.offered();
        let same = |one: Sound| {
            // What is as it was stays the same object, and so does whatever is kept by it.
            let known = before.sound.iter().find(|(known, _)| known.definition == one.definition);
            known.map_or_else(|| Arc::new(one), |(known, _)| Arc::clone(known))
        };
        let judged = self.judge(world, sound.into_iter().map(same).collect(), unsound).await;
        judged.map_err(|error| Error::Closed(error.to_string().into()))
    }

    /// Asks again which of what it listed last is accepted: the server itself need not be there for it. `false` when it
    /// has listed nothing.
    pub(super) async fn judge_again(&self, world: &World) -> Result<bool, PinError> {
        let _turn = self.judging.lock().await;
        let before = self.offered();
        // An empty list would be taken for one from which everything has gone.
        if before.sound.is_empty() {
            return Ok(false);
        }
        let sound = before.sound.iter().map(|(sound, _)| Arc::clone(sound)).collect();
        self.judge(world, sound, before.unsound.clone()).await?;
        Ok(true)
    }

    /// Under `judging`. One that was taken out of service is not asked about: what is known of it may be forgotten by now,
    /// and what nobody knows may be accepted at first sight.
    async fn judge(
        &self,
        world: &World,
        sound: Vec<Arc<Sound>>,
        unsound: Vec<Unsound>,
    ) -> Result<(), PinError> {
        if self.stop.is_cancelled() {
            return Ok(());
        }
        let definitions: Vec<_> = sound.iter().map(|one| one.definition.clone()).collect();
        let standings = world.pins.see(&self.config.name, self.config.trust, &definitions).await?;
        self.offer(Offered { sound: sound.into_iter().zip(standings).collect(), unsound });
        Ok(())
    }
}
