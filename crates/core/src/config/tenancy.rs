use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{TenantId, is_dns_label};

/// Tenants keep callers' data apart.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenancyConfig {
    /// The tenant of credentials that name none.
    #[schemars(with = "String")]
    pub default_tenant: TenantId,
}

impl Default for TenancyConfig {
    fn default() -> Self {
        Self { default_tenant: TenantId::new("local") }
    }
}

impl TenancyConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        if is_dns_label(self.default_tenant.as_str()) {
            return Vec::new();
        }
        vec![(
            "/spec/tenancy/default_tenant".into(),
            "a tenant is 1 to 63 of a-z, 0-9 and -, with no - at the ends".into(),
        )]
    }
}
