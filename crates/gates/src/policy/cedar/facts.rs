//! A call as Cedar sees it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use aegis_core::{
    Caller, Door, Timestamp, VolumePath,
    domain::{mapped_address, normal_host},
    id::{ContextName, CredentialId, TenantId, UserId},
    tool::Target,
};
use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression};
use serde_json::{Map, Value};
use url::Url;

use super::schema::{CALLER, PolicedTool, TOOL, uid};
use crate::policy::{labels::SessionLabels, targets::Targets};

/// A call could not be put into Cedar's terms. It is then refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unstatable(String);

/// All that rules may look at.
#[derive(Debug, Clone, Copy)]
pub(in crate::policy) struct Facts<'a> {
    pub(in crate::policy) caller: &'a Caller,
    pub(in crate::policy) labels: &'a Arc<SessionLabels>,
    pub(in crate::policy) arguments: &'a Map<String, Value>,
    pub(in crate::policy) targets: &'a Targets,
    /// Whether what the call starts may reach other hosts.
    pub(in crate::policy) egress: bool,
    pub(in crate::policy) now: Timestamp,
    /// Arguments whose values are not known, as in a record that holds them in part.
    pub(in crate::policy) hidden: &'a [&'a str],
}

/// The parts of a caller that rules can look at; decisions that depend on nothing else of the call are kept by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CallerFacts {
    tenant: TenantId,
    user: UserId,
    tier: aegis_core::Tier,
    context: ContextName,
    door: Door,
    credential: CredentialId,
}

impl CallerFacts {
    pub(super) fn of(caller: &Caller) -> Self {
        Self {
            tenant: caller.tenant.clone(),
            user: caller.user.clone(),
            tier: caller.tier,
            context: caller.context.clone(),
            door: caller.door,
            credential: caller.credential.clone(),
        }
    }
}

/// Callers kept per tool. When there are more they are all forgotten, which costs time and nothing else.
const MOST_CALLERS: usize = 256;

/// A caller by its name in Cedar, and all entities of its calls of one tool.
type Cast = (EntityUid, Arc<Entities>);

/// A tool's side of every request about it, made once.
#[derive(Debug)]
pub(super) struct Stage {
    action: EntityUid,
    resource: EntityUid,
    /// The tool, its action and the action's groups.
    entities: Vec<Entity>,
    casts: RwLock<HashMap<CallerFacts, Cast>>,
}

impl Stage {
    pub(super) fn of(tool: &PolicedTool) -> Result<Self, Unstatable> {
        let unnamed = || Unstatable(format!("`{}` can't be named in Cedar", tool.spec.name));
        let action = tool.action().ok_or_else(unnamed)?;
        let groups = tool.group_actions().ok_or_else(unnamed)?;
        let resource = uid(TOOL, &tool.spec.name).ok_or_else(unnamed)?;
        let attributes = tool
            .attributes()
            .into_iter()
            .map(|(name, value)| (name, RestrictedExpression::new_string(value)))
            .collect();
        let mut entities = vec![
            entity(resource.clone(), attributes, HashSet::new())?,
            entity(action.clone(), HashMap::new(), groups.iter().cloned().collect())?,
        ];
        for group in groups {
            entities.push(entity(group, HashMap::new(), HashSet::new())?);
        }
        Ok(Self { action, resource, entities, casts: RwLock::default() })
    }

    /// The request of a call by what is the same for all calls of the session.
    pub(super) fn fixed(
        &self,
        caller: &Caller,
        labels: &SessionLabels,
    ) -> Result<(Request, Arc<Entities>), Unstatable> {
        self.request(caller, vec![("session", session(labels)?)])
    }

    /// The request with everything in it.
    pub(super) fn whole(
        &self,
        tool: &PolicedTool,
        facts: &Facts<'_>,
    ) -> Result<(Request, Arc<Entities>), Unstatable> {
        let normal = normal_arguments(tool, facts.arguments);
        let arguments = tool
            .arguments
            .express(normal.as_ref().unwrap_or(facts.arguments), facts.hidden)
            .map_err(|unfit| Unstatable(unfit.to_string()))?;
        let pairs = vec![
            ("arguments", arguments),
            ("paths", texts(facts.targets.paths())),
            ("hosts", texts(facts.targets.hosts())),
            ("programs", texts(facts.targets.programs())),
            ("session", session(facts.labels)?),
            ("time", time(facts.now)?),
        ];
        self.request(facts.caller, pairs)
    }

    fn request(
        &self,
        caller: &Caller,
        pairs: Vec<(&str, RestrictedExpression)>,
    ) -> Result<(Request, Arc<Entities>), Unstatable> {
        let failed = |error: &dyn std::fmt::Display| Unstatable(error.to_string());
        let (who, entities) = self.cast(caller)?;
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
        let context = Context::from_pairs(pairs).map_err(|error| failed(&error))?;
        let request = Request::new(who, self.action.clone(), self.resource.clone(), context, None)
            .map_err(|error| failed(&error))?;
        Ok((request, entities))
    }

    fn cast(&self, caller: &Caller) -> Result<Cast, Unstatable> {
        let facts = CallerFacts::of(caller);
        let known = self.casts.read().unwrap_or_else(PoisonError::into_inner).get(&facts).cloned();
        if let Some(cast) = known {
            return Ok(cast);
        }
        let who = uid(CALLER, &format!("{}/{}", caller.tenant, caller.user))
            .ok_or_else(|| Unstatable("the caller can't be named in Cedar".into()))?;
        let principal = entity(who.clone(), attributes(caller), HashSet::new())?;
        let all = self.entities.iter().cloned().chain([principal]);
        let entities = Entities::from_entities(all, None).map_err(|error| Unstatable(error.to_string()))?;
        let cast = (who, Arc::new(entities));
        let mut casts = self.casts.write().unwrap_or_else(PoisonError::into_inner);
        if casts.len() >= MOST_CALLERS {
            casts.clear();
        }
        casts.insert(facts, cast.clone());
        Ok(cast)
    }
}

fn entity(
    uid: EntityUid,
    attributes: HashMap<String, RestrictedExpression>,
    parents: HashSet<EntityUid>,
) -> Result<Entity, Unstatable> {
    Entity::new(uid, attributes, parents).map_err(|error| Unstatable(error.to_string()))
}

fn attributes(caller: &Caller) -> HashMap<String, RestrictedExpression> {
    let rank = aegis_core::Tier::ALL.iter().position(|tier| *tier == caller.tier).unwrap_or(0);
    let rank = i64::try_from(rank).unwrap_or(0);
    let door = match caller.door {
        Door::McpHttp => "mcp-http",
        Door::McpStdio => "mcp-stdio",
        Door::Rest => "rest",
        Door::Seal => "seal",
        Door::Nfs => "nfs",
        Door::Cli => "cli",
    };
    [
        ("tenant", caller.tenant.as_str()),
        ("user", caller.user.as_str()),
        ("tier", caller.tier.as_str()),
        ("context", caller.context.as_str()),
        ("door", door),
        ("credential", caller.credential.as_str()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), RestrictedExpression::new_string(value.to_owned())))
    .chain([("tier_rank".to_owned(), RestrictedExpression::new_long(rank))])
    .collect()
}

fn session(labels: &SessionLabels) -> Result<RestrictedExpression, Unstatable> {
    record([
        ("labels", texts(labels.classes().iter().map(|class| class.as_str()))),
        ("sources", texts(labels.sources())),
    ])
}

fn time(now: Timestamp) -> Result<RestrictedExpression, Unstatable> {
    let (epoch, hour, weekday) = clock(now);
    let long = RestrictedExpression::new_long;
    record([("epoch", long(epoch)), ("hour", long(hour)), ("weekday", long(weekday))])
}

/// Seconds since 1970, the hour, and the day of the week from Monday, 1.
fn clock(now: Timestamp) -> (i64, i64, i64) {
    let seconds = i64::try_from(now.millis() / 1000).unwrap_or(i64::MAX);
    // The first of January 1970 was a Thursday.
    (seconds, seconds / 3600 % 24, (seconds / 86_400 + 3) % 7 + 1)
}

fn record<const N: usize>(
    members: [(&str, RestrictedExpression); N],
) -> Result<RestrictedExpression, Unstatable> {
    RestrictedExpression::new_record(members.map(|(name, value)| (name.to_owned(), value)))
        .map_err(|error| Unstatable(error.to_string()))
}

fn texts<'a>(items: impl Iterator<Item = &'a str>) -> RestrictedExpression {
    RestrictedExpression::new_set(items.map(|text| RestrictedExpression::new_string(text.to_owned())))
}

/// The arguments with paths and URLs in the one spelling that a rule has to know; `None` when they are so already.
fn normal_arguments(tool: &PolicedTool, arguments: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut normal: Option<Map<String, Value>> = None;
    for target in &tool.spec.targets {
        let (Target::Path { argument } | Target::Tree { argument } | Target::Url { argument }) = target
        else {
            continue;
        };
        let Some(text) = arguments.get(argument.as_ref()).and_then(Value::as_str) else { continue };
        let spelled = match target {
            Target::Url { .. } => normal_url(text),
            _ => VolumePath::parse(text).ok().map(VolumePath::into_string),
        };
        if let Some(spelled) = spelled.filter(|spelled| spelled != text) {
            let normal = normal.get_or_insert_with(|| arguments.clone());
            normal.insert(argument.to_string(), Value::String(spelled));
        }
    }
    normal
}

/// A URL by what it leads to: spellings of one host are one, and a user name or a fragment, which change nothing about
/// that, are gone.
fn normal_url(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let host = mapped_address(host).unwrap_or_else(|| normal_host(host));
    url.set_host(Some(&host)).ok()?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_fragment(None);
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_one_spelling() {
        for text in [
            "https://example.org/a",
            "HTTPS://Example.ORG.:443/a",
            "https://user:password@example.org/a#part",
            "https://example.org/x/../a",
        ] {
            assert_eq!(normal_url(text).as_deref(), Some("https://example.org/a"), "{text}");
        }
        assert_eq!(normal_url("http://[::1]:8080/a?q=1").as_deref(), Some("http://[::1]:8080/a?q=1"));
    }

    #[test]
    fn hours_and_weekdays_are_those_of_the_calendar() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", (0, 0, 4)),
            ("2026-01-05T23:59:59Z", (1_767_657_599, 23, 1)),
            ("2026-02-01T09:00:00Z", (1_769_936_400, 9, 7)),
        ] {
            assert_eq!(clock(Timestamp::parse(text).unwrap()), expected);
        }
    }
}
