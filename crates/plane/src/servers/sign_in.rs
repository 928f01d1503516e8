//! Signing in to servers: begun and ended by an operator, with a browser in between.

use super::{Server, ServerError, ServerSource, Servers};
use aegis_core::{
    Caller, Secret,
    config::upstream::Grant,
    upstream::{SignInBegun, SignInWish, SignedIn},
};

impl Servers {
    /// Finds out where somebody signs in to a server. Nothing changes by it.
    pub async fn begin_sign_in(&self, name: &str, wish: &SignInWish) -> Result<SignInBegun, ServerError> {
        let found = self.show(name).await?.configured;
        let in_file = found.source == ServerSource::File;
        let is_said =
            found.server.oauth.as_ref().is_some_and(|oauth| oauth.grant == Grant::AuthorizationCode);
        if in_file && !is_said {
            let place = self.layers.lock().await.place();
            return Err(ServerError::NoSignIn { name: name.to_owned(), place });
        }
        Ok(self.live.begin_sign_in(&found.server, wish, in_file).await?)
    }

    /// Gets the tokens for what the browser came back with, keeps them, and lets the server use them. An added server's
    /// entry says so from then on, in the place of a fixed `Authorization`.
    pub async fn finish_sign_in(
        &self,
        name: &str,
        back: &Secret,
        operator: &Caller,
    ) -> Result<Server, ServerError> {
        let server = self.show(name).await?.configured.server;
        self.record("upstream-sign-in", name, [], operator).await?;
        let SignedIn { oauth, keep } = self.live.finish_sign_in(&server, back).await?;
        let layers = self.layers.lock().await;
        let found = layers.configured().into_iter().find(|one| one.server.name == name);
        // Getting them took a while; at another address they have no business.
        let found = found.filter(|one| one.server.url == server.url);
        let found = found.ok_or_else(|| ServerError::Moved(name.to_owned()))?;
        // While the layers are held nobody removes the server, and leaves behind what nobody will look for.
        keep.await?;
        let changed = Some(found)
            .filter(|one| one.source == ServerSource::Added && one.server.oauth.as_ref() != Some(&oauth));
        match changed {
            Some(changed) => {
                let mut server = changed.server;
                server.oauth = Some(oauth);
                server.credentials.retain(|header, _| !header.eq_ignore_ascii_case("authorization"));
                self.amend(layers, server, operator).await?;
            }
            None => {
                drop(layers);
                self.live.restart(name).await?;
            }
        }
        self.show(name).await
    }
}
