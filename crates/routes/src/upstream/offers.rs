//! Who offers what, for the door that passes it on in MCP's own words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, PoisonError},
    time::Duration,
};

use aegis_core::upstream::{BoxFuture, SharedResource};
use aegis_mcp_client::Listed;
use serde::Deserialize;
use tokio::{sync::broadcast, time::Instant};

use super::{Servers, World, notices::Notice, server::Server};

/// How long a list is believed without being read again.
const FRESH: Duration = Duration::from_secs(60);
/// A list in which something is missing is read again, but not more often than this.
const AGAIN: Duration = Duration::from_millis(500);
/// Templates of one server that are kept, and how large each may be: they are matched before any gate has looked.
const MOST_TEMPLATES: usize = 500;
const LONGEST_TEMPLATE: usize = 2 << 10;
const MOST_EXPRESSIONS: usize = 16;
/// How long somebody who looks at all servers waits for the list of one.
const GLANCE: Duration = Duration::from_secs(2);
/// Addresses that are told to be several servers'.
const MOST_SHARED: usize = 100;
/// A longer address comes of no template.
const LONGEST_FITTING: usize = 8 << 10;

/// What servers offer besides tools. Reading any of it is a call like any other; this only says whose it is.
pub trait Offers: Send + Sync + Debug {
    /// Whether any running server has a capability: `resources`, or within it `subscribe`.
    fn can(&self, capability: &str, within: Option<&str>) -> bool;

    /// Everybody who claims it, each with what that server calls it. Any server can claim any address: where several do,
    /// which of them is meant is not for the order of their names to say.
    fn owners<'a>(&'a self, sought: Sought<'a>) -> BoxFuture<'a, Vec<Owner>>;

    /// What clients call a prompt of a server.
    fn public_prompt(&self, server: &str, prompt: &str) -> String;

    /// What servers say unasked, from now on.
    fn notices(&self) -> broadcast::Receiver<Notice>;

    /// Tells that there are other tools. Whoever keeps the rules in step with the catalog says when: a client that
    /// looks sooner would not see what is new.
    fn tell_tools_changed(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought<'a> {
    /// By its address.
    Resource(&'a str),
    /// By the text of the template.
    Template(&'a str),
    /// By the name that clients use.
    Prompt(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub server: String,
    pub name: String,
}

/// A node without servers.
#[derive(Debug)]
pub struct NoOffers(broadcast::Sender<Notice>);

impl Default for NoOffers {
    fn default() -> Self {
        Self(broadcast::channel(1).0)
    }
}

impl Offers for NoOffers {
    fn can(&self, _: &str, _: Option<&str>) -> bool {
        false
    }

    fn owners<'a>(&'a self, _: Sought<'a>) -> BoxFuture<'a, Vec<Owner>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn public_prompt(&self, _: &str, prompt: &str) -> String {
        prompt.to_owned()
    }

    fn notices(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }

    fn tell_tools_changed(&self) {}
}

impl Offers for Servers {
    fn can(&self, capability: &str, within: Option<&str>) -> bool {
        self.0.servers().iter().any(|server| can(server, capability, within))
    }

    fn owners<'a>(&'a self, sought: Sought<'a>) -> BoxFuture<'a, Vec<Owner>> {
        Box::pin(self.0.owners(sought))
    }

    fn public_prompt(&self, server: &str, prompt: &str) -> String {
        match self.0.server(server).as_ref().and_then(|server| server.config.namespace()) {
            Some(namespace) => format!("{namespace}.{prompt}"),
            None => prompt.to_owned(),
        }
    }

    fn notices(&self) -> broadcast::Receiver<Notice> {
        Servers::notices(self)
    }

    fn tell_tools_changed(&self) {
        self.0.notices.tell(Notice::ToolsChanged);
    }
}

fn can(server: &Server, capability: &str, within: Option<&str>) -> bool {
    let client = server.shared();
    client.is_ok_and(|client| client.facts().is_some_and(|facts| facts.can(capability, within)))
}

/// What was listed last, by server.
#[derive(Debug, Default)]
pub(super) struct Listings(BTreeMap<String, Arc<Listing>>);

#[derive(Debug)]
struct Listing {
    read: Instant,
    resources: BTreeSet<String>,
    templates: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Resource {
    uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    uri_template: String,
}

impl World {
    async fn owners(&self, sought: Sought<'_>) -> Vec<Owner> {
        if let Sought::Prompt(name) = sought {
            return self.prompt_owners(name).await;
        }
        let (able, silent): (Vec<Arc<Server>>, Vec<Arc<Server>>) =
            self.servers().into_iter().partition(|server| can(server, "resources", None));
        let (Sought::Resource(text) | Sought::Template(text) | Sought::Prompt(text)) = sought;
        let owned =
            |server: &Arc<Server>| Owner { server: server.config.name.clone(), name: text.to_owned() };
        let claims = |listing: &Listing| match sought {
            Sought::Template(template) => listing.templates.contains(template),
            _ => {
                listing.resources.contains(text)
                    || listing.templates.iter().any(|template| fits(template, text))
            }
        };
        // What a server listed is not another's for the taking while it is away.
        let absent: Vec<Owner> = silent
            .iter()
            .filter(|server| self.listed(&server.config.name).is_some_and(|listing| claims(&listing)))
            .map(owned)
            .collect();
        // Servers may have more than they list; with one there is nobody else to ask.
        if let ([only], []) = (&*able, &*absent) {
            return vec![owned(only)];
        }
        for patience in [FRESH, AGAIN] {
            let listings = self.listings(&able, patience).await;
            let claiming = able
                .iter()
                .zip(&listings)
                .filter(|(_, listing)| listing.as_ref().is_some_and(|listing| claims(listing)));
            let owners: Vec<Owner> =
                claiming.map(|(server, _)| owned(server)).chain(absent.iter().cloned()).collect();
            if !owners.is_empty() {
                return owners;
            }
        }
        Vec::new()
    }

    async fn prompt_owners(&self, name: &str) -> Vec<Owner> {
        let able: Vec<Arc<Server>> =
            self.servers().into_iter().filter(|server| can(server, "prompts", None)).collect();
        let mut bare = Vec::new();
        let mut best: Option<(usize, Owner)> = None;
        for server in &able {
            let Some(namespace) = server.config.namespace() else {
                bare.push(server);
                continue;
            };
            let Some(rest) = name.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            if best.as_ref().is_none_or(|(length, _)| namespace.len() > *length) {
                let owner = Owner { server: server.config.name.clone(), name: rest.to_owned() };
                best = Some((namespace.len(), owner));
            }
        }
        if let Some((_, owner)) = best {
            return vec![owner];
        }
        let owned =
            |server: &Arc<Server>| Owner { server: server.config.name.clone(), name: name.to_owned() };
        if let [only] = &*bare {
            return vec![owned(only)];
        }
        let mut owners = Vec::new();
        for server in bare {
            let Ok(client) = server.shared() else { continue };
            let listed =
                tokio::time::timeout(server.config.limits.call_timeout.0, client.list(Listed::Prompts)).await;
            let Ok(Ok(listed)) = listed else { continue };
            #[derive(Deserialize)]
            struct Prompt {
                name: String,
            }
            if listed
                .iter()
                .any(|one| serde_json::from_str::<Prompt>(one.get()).is_ok_and(|one| one.name == name))
            {
                owners.push(owned(server));
            }
        }
        owners
    }

    /// Addresses that several servers list: who reads one has to say whose.
    pub(super) async fn shared_resources(&self) -> Vec<SharedResource> {
        let able: Vec<Arc<Server>> =
            self.servers().into_iter().filter(|server| can(server, "resources", None)).collect();
        if able.len() < 2 {
            return Vec::new();
        }
        let reading = able.iter().map(|server| async move {
            let read = self.listings(std::slice::from_ref(server), FRESH);
            match tokio::time::timeout(GLANCE, read).await {
                Ok(mut read) => read.pop().flatten(),
                Err(_) => self.listed(&server.config.name),
            }
        });
        let listings = futures::future::join_all(reading).await;
        let mut claimed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (server, listing) in able.iter().zip(&listings) {
            for uri in listing.iter().flat_map(|listing| &listing.resources) {
                claimed.entry(uri).or_default().push(&server.config.name);
            }
        }
        let shared = claimed.into_iter().filter(|(_, servers)| servers.len() > 1);
        let owned = |servers: Vec<&str>| servers.into_iter().map(str::to_owned).collect();
        shared
            .take(MOST_SHARED)
            .map(|(uri, servers)| SharedResource { uri: uri.to_owned(), servers: owned(servers) })
            .collect()
    }

    /// What a server listed last, however long ago.
    fn listed(&self, server: &str) -> Option<Arc<Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).0.get(server).cloned()
    }

    async fn listings(&self, servers: &[Arc<Server>], patience: Duration) -> Vec<Option<Arc<Listing>>> {
        let reading = servers.iter().map(|server| async move {
            let name = &server.config.name;
            let kept = self.listed(name);
            if kept.as_ref().is_some_and(|listing| listing.read.elapsed() < patience) {
                return kept;
            }
            let Ok(client) = server.shared() else { return kept };
            let reading = async {
                let resources = client.list(Listed::Resources).await;
                let templates = client.list(Listed::ResourceTemplates).await;
                // A server may know one of the two requests only.
                (resources.is_ok() || templates.is_ok())
                    .then(|| (resources.unwrap_or_default(), templates.unwrap_or_default()))
            };
            let reading = tokio::time::timeout(server.config.limits.call_timeout.0, reading);
            let Ok(Some((resources, templates))) = reading.await else { return kept };
            let read = |text: &serde_json::value::RawValue| serde_json::from_str::<Resource>(text.get()).ok();
            let listing = Arc::new(Listing {
                read: Instant::now(),
                resources: resources.iter().filter_map(|one| Some(read(one)?.uri)).collect(),
                templates: templates
                    .iter()
                    .filter_map(|one| Some(serde_json::from_str::<Template>(one.get()).ok()?.uri_template))
                    .filter(|template| is_usable(template))
                    .take(MOST_TEMPLATES)
                    .collect(),
            });
            let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            listings.0.insert(name.clone(), Arc::clone(&listing));
            Some(listing)
        });
        futures::future::join_all(reading).await
    }
}

fn is_usable(template: &str) -> bool {
    template.len() <= LONGEST_TEMPLATE
        && template.bytes().filter(|byte| *byte == b'{').count() <= MOST_EXPRESSIONS
}

/// Whether an address could come of a template (RFC 6570): every expression stands for something, and one that says so
/// for several segments. Goes through both once, with all the places of the address that can be reached so far: trying
/// them one after the other would take for ever where a server wants it to.
fn fits(template: &str, uri: &str) -> bool {
    if uri.len() > LONGEST_FITTING || !is_usable(template) {
        return false;
    }
    let mut reached = vec![false; uri.len() + 1];
    reached[0] = true;
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('{') {
        let Some((expression, after)) = after.split_once('}') else { return false };
        reached = after_expression(expression, uri, &after_literal(literal, uri, &reached));
        if !reached.contains(&true) {
            return false;
        }
        rest = after;
    }
    after_literal(rest, uri, &reached).last() == Some(&true)
}

fn after_literal(literal: &str, uri: &str, reached: &[bool]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for start in (0..reached.len()).filter(|start| reached[*start]) {
        if uri.as_bytes()[start..].starts_with(literal.as_bytes()) {
            next[start + literal.len()] = true;
        }
    }
    next
}

fn after_expression(expression: &str, uri: &str, reached: &[bool]) -> Vec<bool> {
    let may_be_nothing = expression.starts_with(['?', '&', '#', '/', '.', ';']);
    let spans = may_be_nothing || expression.starts_with('+') || expression.ends_with('*');
    let mut next = vec![false; reached.len()];
    let mut is_open = false;
    for (end, begins) in reached.iter().enumerate() {
        if end > 0 && !spans && matches!(uri.as_bytes()[end - 1], b'/' | b'?' | b'#') {
            is_open = false;
        }
        next[end] = uri.is_char_boundary(end) && (is_open || (*begins && may_be_nothing));
        is_open |= *begins;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_fit_what_could_come_of_them() {
        for (template, uri) in [
            ("test://template/{id}/data", "test://template/123/data"),
            ("file:///{+path}", "file:///a/b/c"),
            ("file:///{path*}", "file:///a/b"),
            ("q://search{?text}", "q://search"),
            ("q://search{?text}", "q://search?text=a"),
            ("plain://x", "plain://x"),
            ("a://{b}-{c}", "a://ü-ö"),
        ] {
            assert!(fits(template, uri), "{template} {uri}");
        }
        for (template, uri) in [
            ("test://template/{id}/data", "test://template//data"),
            ("test://template/{id}/data", "test://template/1/2/data"),
            ("file:///{+path}", "file:///"),
            ("plain://x", "plain://xy"),
            ("broken://{x", "broken://y"),
        ] {
            assert!(!fits(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn no_template_takes_long() {
        // Each would be tried in more ways than there are atoms.
        let many = format!("a://{}!", "{+x}".repeat(MOST_EXPRESSIONS));
        assert!(!fits(&many, &format!("a://{}", "a".repeat(LONGEST_FITTING - 4))));
        assert!(fits(&many, &format!("a://{}!", "a".repeat(LONGEST_FITTING - 5))));
        // And what is out of bounds is not tried at all, nor kept.
        for template in ["{+x}".repeat(MOST_EXPRESSIONS + 1), "a".repeat(LONGEST_TEMPLATE + 1)] {
            assert!(
                !is_usable(&template) && !fits(&template, &"a".repeat(template.len().min(LONGEST_FITTING)))
            );
        }
        assert!(!fits("{+x}", &"a".repeat(LONGEST_FITTING + 1)));
        assert!(!fits(&"{+x}".repeat(4 << 20), "a"));
    }
}
