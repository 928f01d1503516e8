//! Who is asking: a bearer token against the registry of tokens, or a signed envelope against its session.

pub mod seal;

use aegis_core::{Caller, Door, Violation, ViolationKind, id::SessionId};
use aegis_stores::registry::{Registry, TokenError};

use self::seal::SealGate;

/// Turns a credential into a caller. Tenant, user, tier and context come from what was stored when the credential
/// was made, never from the request.
#[derive(Debug, Clone)]
pub struct IdentityGate {
    registry: Registry,
    seal: SealGate,
}

impl IdentityGate {
    pub fn new(registry: Registry, seal: SealGate) -> Self {
        Self { registry, seal }
    }

    /// The gate for signed envelopes.
    pub fn seal(&self) -> &SealGate {
        &self.seal
    }

    pub async fn bearer(
        &self,
        token: Option<&str>,
        door: Door,
        session: Option<SessionId>,
    ) -> Result<Caller, Violation> {
        let Some(token) = token else {
            return Err(Violation::new(ViolationKind::Unauthenticated, "no credential was sent")
                .hint("send `Authorization: Bearer TOKEN`; make a token with `aegis token create`"));
        };
        let row = self.registry.lookup(token).await.map_err(|error| refusal(&error))?;
        Ok(Caller {
            tenant: row.tenant.clone(),
            user: row.user.clone(),
            tier: row.tier,
            context: row.context.clone(),
            credential: row.id.clone(),
            door,
            session,
            pinned: None,
        })
    }
}

fn refusal(error: &TokenError) -> Violation {
    let kind = match error {
        TokenError::Unknown => ViolationKind::Unauthenticated,
        TokenError::Expired { .. } => ViolationKind::CredentialExpired,
        TokenError::Revoked { .. } => ViolationKind::CredentialRevoked,
        TokenError::Registry(_) => ViolationKind::InternalError,
    };
    Violation::new(kind, error.to_string())
}
