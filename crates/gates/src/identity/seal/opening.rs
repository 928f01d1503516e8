//! Who gets a session, and for what.

use std::sync::Arc;

use aegis_core::{
    Caller, Secret, Timestamp, Violation, ViolationKind,
    caller::Tier,
    config::security_context::{OPERATOR_CONTEXT, is_open_to},
    id::{ContextName, ContextVersion, SessionId, TenantId, UserId, is_dns_label},
};
use aegis_stores::registry::{Authority, LiveSession, NewSession, OpenError, Session, WorkloadHash};
use sha2::{Digest, Sha256};

use super::{
    attest::{Attestation, usable_key},
    clock::second,
    gate::{SealError, SealGate, held},
    refusal::{
        ATTESTATION_FAILED, Refusal, SCOPE_UNKNOWN, WORKLOAD_UNKNOWN, bad_token, internal, spent, token_gone,
        too_many,
    },
    token::{self, Audience, Claims},
};

/// A session that has just been opened, with the token that is shown once.
#[derive(Debug)]
pub struct Attested {
    pub token: Secret,
    pub session: Session,
}

/// What somebody may have a session for.
struct Entitled {
    authority: Authority,
    tenant: TenantId,
    user: UserId,
    tier: Tier,
    workload: String,
    /// The session ends no later.
    until: Timestamp,
}

/// A session to take in. Its context, tenant and times are those of its token.
#[derive(Debug, Clone)]
pub struct Provision {
    pub token: Secret,
    /// Of the workload, in any of the forms that attestation takes.
    pub public_key: String,
    pub user: UserId,
    pub tier: Tier,
}

impl SealGate {
    /// Opens a session. `context_version` says which version of a context is in force, if there is such a context.
    pub async fn attest(
        &self,
        wanted: &Attestation,
        bearer: Option<&Caller>,
        context_version: impl FnOnce(&ContextName) -> Option<ContextVersion> + Send,
    ) -> Result<Attested, Refusal> {
        let now = self.now();
        let Some(context) = wanted.context() else {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                SCOPE_UNKNOWN,
                "the attestation names no security context",
            )
            .hint("send `security_context`: there is no default"));
        };
        let version = context_version(context);
        let entitled = match bearer {
            Some(caller) => self.by_token(wanted, caller, context, now).await?,
            None => self.by_enrolment(wanted, context, now)?,
        };
        if wanted.tenant.as_deref().is_some_and(|tenant| tenant != entitled.tenant.as_str()) {
            let message = "the attestation names another tenant than its credential is of";
            return Err(Refusal::new(Violation::new(ViolationKind::TenantMismatch, message), None)
                .hint("leave `tenant_id` out: the tenant comes from the enrolment or token"));
        }
        is_open_to(context.as_str(), entitled.tenant.as_str(), entitled.tier)
            .map_err(|closed| Refusal::of(ViolationKind::AttestationFailed, WORKLOAD_UNKNOWN, closed))?;
        let Some(version) = version else {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                SCOPE_UNKNOWN,
                format!("there is no security context `{context}`"),
            )
            .rule("spec.security_contexts"));
        };
        self.open_session(wanted, entitled, context, version, now).await
    }

    fn by_enrolment(
        &self,
        wanted: &Attestation,
        context: &ContextName,
        now: Timestamp,
    ) -> Result<Entitled, Refusal> {
        let hash = wanted.workload.as_deref().and_then(WorkloadHash::of);
        let Some(enrolment) = hash.and_then(|hash| self.inner.registry.enrolment(&hash)) else {
            held(&self.inner.strangers).take(&(), now).map_err(too_many)?;
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                WORKLOAD_UNKNOWN,
                "no workload is enrolled under this id",
            )
            .hint(
                "ask the node's operator to enrol it: `aegis seal enroll --context C` prints the id to send",
            ));
        };
        held(&self.inner.attestations).take(&enrolment.id, now).map_err(too_many)?;
        enrolment.usable_at(now).map_err(spent)?;
        if enrolment.key.is_some_and(|key| &key != wanted.public_key()) {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                WORKLOAD_UNKNOWN,
                "the workload is enrolled with another key",
            ));
        }
        if !enrolment.contexts.contains(context) {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                WORKLOAD_UNKNOWN,
                format!("the workload is not enrolled for the context `{context}`"),
            )
            .rule(format!("enrolment {}", enrolment.id)));
        }
        Ok(Entitled {
            authority: Authority::Enrolment(enrolment.id.clone()),
            tenant: enrolment.tenant.clone(),
            user: enrolment.user.clone(),
            tier: enrolment.tier,
            workload: enrolment.id.to_string(),
            until: Timestamp::from_millis(u64::MAX),
        })
    }

    /// A token stands for its own context, or, if it is the operator's, for any, as a user of it.
    async fn by_token(
        &self,
        wanted: &Attestation,
        caller: &Caller,
        context: &ContextName,
        now: Timestamp,
    ) -> Result<Entitled, Refusal> {
        held(&self.inner.attestations).take(&caller.credential, now).map_err(too_many)?;
        let is_operator = caller.tier == Tier::Operator && caller.context.as_str() == OPERATOR_CONTEXT;
        let tier = if context == &caller.context {
            caller.tier
        } else if is_operator {
            Tier::User
        } else {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                WORKLOAD_UNKNOWN,
                format!("the token is for the context `{}`, not `{context}`", caller.context),
            )
            .rule(format!("token {}", caller.credential)));
        };
        let until =
            self.inner.registry.token_end(&caller.credential, now).await.map_err(|error| internal(&error))?;
        let until = until.ok_or_else(token_gone)?;
        Ok(Entitled {
            authority: Authority::Token(caller.credential.clone()),
            tenant: caller.tenant.clone(),
            user: caller.user.clone(),
            tier,
            // A name that the client chose, kept for people to recognise; an enrolled id would be a secret.
            workload: wanted
                .workload
                .as_deref()
                .filter(|name| WorkloadHash::of(name).is_none() && name.len() <= 128)
                .map_or_else(|| caller.credential.to_string(), str::to_owned),
            until,
        })
    }

    async fn open_session(
        &self,
        wanted: &Attestation,
        entitled: Entitled,
        context: &ContextName,
        version: ContextVersion,
        now: Timestamp,
    ) -> Result<Attested, Refusal> {
        if !self.inner.keys.can_sign() {
            let inner = Arc::clone(&self.inner);
            let made = tokio::task::spawn_blocking(move || inner.keys.ensure(now)).await;
            made.map_err(|_| internal(&SealError::Stopped))?.map_err(|error| internal(&error))?;
        }
        let issued = now.millis() / 1000;
        let expires = (issued + self.inner.token_seconds).min(entitled.until.millis() / 1000);
        if expires <= issued {
            return Err(token_gone());
        }
        let (id, agent, execution) = (fresh_uuid()?, fresh_uuid()?, fresh_uuid()?);
        let claims = Claims {
            iss: self.inner.terms.issuer.clone(),
            aud: Audience::One(self.inner.terms.audiences.first().cloned().unwrap_or_default()),
            sub: agent,
            scp: context.to_string(),
            wid: entitled.workload,
            jti: id,
            exec_id: execution,
            tenant_id: entitled.tenant.to_string(),
            iat: issued,
            exp: expires,
            nbf: None,
        };
        let token = self.inner.keys.sign(|key, kid| token::issue(&claims, key, kid).ok());
        let token = token.ok_or_else(|| internal(&"a token could not be signed"))?;
        let new = NewSession {
            id: SessionId::new(&claims.jti),
            tenant: entitled.tenant,
            user: entitled.user,
            tier: entitled.tier,
            context: context.clone(),
            pinned: Some(version),
            workload: claims.wid,
            agent: claims.sub,
            execution: claims.exec_id,
            key: wanted.key,
            created: Timestamp::from_millis(issued * 1000),
            expires: Timestamp::from_millis(expires * 1000),
            token_hash: Sha256::digest(&token).into(),
            era: held(&self.inner.replay).era(second(now)).map_err(|error| internal(&error))?,
        };
        let live = self.keep(entitled.authority, new, now).await?;
        Ok(Attested { token: Secret::new(token), session: live.session.clone() })
    }

    async fn keep(
        &self,
        authority: Authority,
        new: NewSession,
        now: Timestamp,
    ) -> Result<Arc<LiveSession>, Refusal> {
        self.inner.registry.open_session(authority, new, now).await.map_err(|error| match error {
            OpenError::Spent(why) => spent(why),
            OpenError::TokenGone => token_gone(),
            OpenError::Registry(error) => internal(&error),
        })
    }

    /// Takes in a session whose token somebody else made: one whose key is in `spec.seal.trusted_keys`. For operators;
    /// the session ends with the operator's own token, at the latest.
    pub async fn provision(
        &self,
        new: &Provision,
        operator: &Caller,
        context_version: impl FnOnce(&ContextName) -> Option<ContextVersion> + Send,
    ) -> Result<Session, Refusal> {
        let now = self.now();
        let refused =
            |message: &str| Refusal::of(ViolationKind::AttestationFailed, ATTESTATION_FAILED, message);
        let is_operator = operator.tier == Tier::Operator && operator.context.as_str() == OPERATOR_CONTEXT;
        if !is_operator {
            return Err(Refusal::new(
                Violation::new(ViolationKind::OperatorOnly, "sessions are provisioned by operators"),
                None,
            ));
        }
        let token = new.token.expose();
        let claims = token::verify(token, &self.inner.keys.ring(), &self.inner.terms, now.millis() / 1000)
            .map_err(bad_token)?;
        let context = ContextName::new(&claims.scp);
        let Some(version) = context_version(&context) else {
            return Err(Refusal::of(
                ViolationKind::AttestationFailed,
                SCOPE_UNKNOWN,
                format!("there is no security context `{context}`"),
            ));
        };
        if !is_dns_label(&claims.tenant_id) {
            return Err(refused("the token names no tenant"));
        }
        is_open_to(context.as_str(), &claims.tenant_id, new.tier).map_err(|closed| refused(&closed))?;
        let expires = Timestamp::from_millis(claims.exp.saturating_mul(1000));
        let until = self.inner.registry.token_end(&operator.credential, now).await;
        if until.map_err(|error| internal(&error))?.is_none_or(|until| until < expires) {
            return Err(refused("the operator's token ends before the session would"));
        }
        let token_hash = Sha256::digest(token).into();
        let known = self.inner.registry.session(&token_hash).await.map_err(|error| internal(&error))?;
        if known.is_some() {
            return Err(refused("there is a session with this token already"));
        }
        let session = NewSession {
            id: SessionId::new(&claims.jti),
            tenant: TenantId::new(&claims.tenant_id),
            user: new.user.clone(),
            tier: new.tier,
            context,
            pinned: Some(version),
            workload: claims.wid,
            agent: claims.sub,
            execution: claims.exec_id,
            key: usable_key(&new.public_key)?,
            created: now,
            expires,
            token_hash,
            era: held(&self.inner.replay).era(second(now)).map_err(|error| internal(&error))?,
        };
        Ok(self.keep(Authority::Token(operator.credential.clone()), session, now).await?.session.clone())
    }
}

fn fresh_uuid() -> Result<String, Refusal> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| internal(&error))?;
    Ok(uuid::Builder::from_random_bytes(random).into_uuid().to_string())
}
