use std::sync::Arc;

use aegis_core::{
    Approval, Caller, Door, FailureKind, Grant, Outcome, Permit, Tier, ToolSpec, Violation,
    approval::{Desk, Pending, Question},
    id::{CallId, CredentialId, TenantId, UserId},
    progress::Silence,
    runtimes,
    tool::{Directory, Mutability, Route},
    verdict::{Gate, GateVerdict},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

const NONE: [String; 0] = [];

/// Shows each caller what its tier reaches, with one tool that has an alias.
struct Shelf(Vec<Arc<ToolSpec>>);

impl Directory for Shelf {
    fn visible(&self, caller: &Caller) -> Vec<Arc<ToolSpec>> {
        self.0.iter().filter(|spec| caller.tier.reaches(spec.tier)).cloned().collect()
    }
}

impl Desk for Shelf {
    fn ask<'a>(&'a self, _: &'a Caller, _: Question) -> Pending<'a, Result<Option<Approval>, Violation>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

fn catalog() -> Catalog {
    let facts = NodeFacts {
        version: "1.2.3",
        capabilities: vec!["files", "web", "audit", "mcp"],
        healthy: Arc::new(|| true),
        config: Arc::new(|| ("/etc/aegis/node-config.yaml".into(), "kind: NodeConfig\n".into())),
    };
    register(Catalog::default(), facts, runtimes::registry(&[]))
}

fn shelf(catalog: &Catalog) -> Shelf {
    let mut specs: Vec<Arc<ToolSpec>> = catalog.specs();
    let mut other = specs[0].as_ref().clone();
    other.name = "fs.create_dir".into();
    other.aliases = vec!["fs.create.dir".into()];
    other.category = "fs".into();
    other.description = "Make a directory; it has nothing to do with a schema.".into();
    specs.push(Arc::new(other));
    Shelf(specs)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a tool can't be tried without a permit, and no plane is at hand"
)]
fn permit(tier: Tier, tool: &str) -> Permit {
    let caller = Caller {
        tenant: TenantId::new("local"),
        user: UserId::new("someone"),
        tier,
        context: "workspace".into(),
        credential: CredentialId::new("token"),
        door: Door::Cli,
        session: None,
        pinned: None,
    };
    let verdicts: Vec<GateVerdict> = Gate::REQUIRED.into_iter().map(GateVerdict::pass).collect();
    Permit::grant(CallId::fresh(), tool, caller, Grant::default(), &verdicts).unwrap()
}

async fn call_as(tier: Tier, catalog: &Catalog, name: &str, arguments: Value) -> Outcome {
    let spec = catalog.resolve(name).unwrap().clone();
    let directory = shelf(catalog);
    let arguments = arguments.as_object().unwrap().clone();
    let outcome = catalog
        .carry_out(
            permit(tier, &spec.name),
            &spec,
            arguments,
            &directory,
            &directory,
            &CancellationToken::new(),
            &Silence,
        )
        .await
        .unwrap();
    if outcome.failure.is_none() {
        let errors: Vec<String> = jsonschema::validator_for(&spec.structured_schema)
            .unwrap()
            .iter_errors(outcome.structured())
            .map(|error| error.to_string())
            .collect();
        assert_eq!(errors, NONE, "{name} breaks its own output schema");
    }
    outcome
}

async fn call(name: &str, arguments: Value) -> Value {
    let outcome = call_as(Tier::User, &catalog(), name, arguments).await;
    assert_eq!(outcome.failure, None, "{}", outcome.value);
    outcome.value
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[test]
fn facts_are_those_of_the_contracts() {
    let catalog = catalog();
    let specs = catalog.specs();
    let tiers: Vec<(&str, &str, Tier)> =
        specs.iter().map(|spec| (spec.name.as_ref(), spec.category.as_ref(), spec.tier)).collect();
    assert_eq!(
        tiers,
        [
            ("aegis.tools.list", "tools", Tier::User),
            ("aegis.tools.search", "tools", Tier::User),
            ("aegis.schema.get", "schema", Tier::User),
            ("aegis.schema.validate", "schema", Tier::User),
            ("aegis.system.info", "system", Tier::Operator),
            ("aegis.system.config", "system", Tier::Operator),
            ("aegis.runtime.list", "runtime", Tier::User),
        ]
    );
    for spec in catalog.specs() {
        assert!(spec.skip_judge && spec.mutability == Mutability::ReadOnly && spec.route == Route::Builtin);
        assert!(
            jsonschema::meta::is_valid(&spec.input_schema) && jsonschema::meta::is_valid(&spec.output_schema)
        );
        let validator = jsonschema::validator_for(&spec.input_schema).unwrap();
        for example in &spec.examples {
            assert!(validator.is_valid(&example.arguments), "{}: {}", spec.name, example.title);
        }
        assert!(!spec.examples.is_empty() && !spec.tags.is_empty());
    }
}

#[tokio::test]
async fn the_list_is_what_the_caller_may_call() {
    let user = call("aegis.tools.list", json!({})).await;
    assert_eq!(user["tool"], "aegis.tools.list");
    assert_eq!(user["total"], 7);
    assert!(!names(&user).contains(&"aegis.system.info"));
    assert!(user.get("limit").is_none());

    let operator = call_as(Tier::Operator, &catalog(), "aegis.tools.list", json!({})).await.value;
    assert_eq!(operator["total"], 9);
    assert_eq!(names(&operator).len(), 9);

    let row = &user["tools"][0];
    assert_eq!(row["source"], "builtin");
    assert_eq!(row["skip_judge"], true);
    assert_eq!(row["category"], "tools");
    assert_eq!(row["inputSchema"]["type"], "object");
    assert!(row.get("alias_of").is_none());
    assert_eq!(user["tools"][6]["alias_of"], "fs.create_dir");
}

#[tokio::test]
async fn pages_and_filters() {
    let page = call("aegis.tools.list", json!({"limit": 2, "offset": 1, "unknown": true})).await;
    assert_eq!(names(&page), ["aegis.tools.search", "aegis.schema.get"]);
    assert_eq!((&page["total"], &page["limit"], &page["offset"]), (&json!(7), &json!(2), &json!(1)));
    assert_eq!(names(&call("aegis.tools.list", json!({"offset": 99})).await), [""; 0]);
    assert_eq!(
        names(&call("aegis.tools.list", json!({"category": "FS"})).await),
        ["fs.create_dir", "fs.create.dir"]
    );
    assert_eq!(call("aegis.tools.list", json!({"source": "mcp_server"})).await["total"], 0);
}

#[tokio::test]
async fn hits_in_names_come_first() {
    let found = call("aegis.tools.search", json!({"query": "Schema"})).await;
    assert_eq!(found["query"], "Schema");
    assert_eq!(
        names(&found),
        ["aegis.schema.get", "aegis.schema.validate", "fs.create_dir", "fs.create.dir"]
    );
    assert_eq!(found["total"], 4);
    assert_eq!(
        names(&call("aegis.tools.search", json!({"query": "schema get"})).await)[0],
        "aegis.schema.get"
    );
    assert_eq!(names(&call("aegis.tools.search", json!({"query": "no such thing"})).await), [""; 0]);
    let all = call("aegis.tools.search", json!({})).await;
    assert_eq!((&all["query"], &all["total"]), (&Value::Null, &json!(7)));
}

#[tokio::test]
async fn searches_by_pattern_tag_category_and_source() {
    for (arguments, expected) in [
        (json!({"name_pattern": "aegis.schema.*"}), vec!["aegis.schema.get", "aegis.schema.validate"]),
        (json!({"name_pattern": "*.LIST"}), vec!["aegis.tools.list", "aegis.runtime.list"]),
        (json!({"tags": ["manifest", "schema"]}), vec!["aegis.schema.get", "aegis.schema.validate"]),
        (json!({"category": "runtime"}), vec!["aegis.runtime.list"]),
        (json!({"source": "elsewhere"}), vec![]),
        (json!({"query": "manifest", "name_pattern": "*.get"}), vec!["aegis.schema.get"]),
    ] {
        assert_eq!(names(&call("aegis.tools.search", arguments.clone()).await), expected, "{arguments}");
    }
    for pattern in ["[", "{a", &"x".repeat(300)] {
        let outcome =
            call_as(Tier::User, &catalog(), "aegis.tools.search", json!({"name_pattern": pattern})).await;
        assert_eq!(outcome.failure, Some(FailureKind::InvalidPattern));
        assert_eq!(outcome.value["tool"], "aegis.tools.search");
    }
}

#[tokio::test]
async fn schemas_and_the_answer_to_an_unknown_key() {
    let schema = call("aegis.schema.get", json!({"key": "agent/manifest/v1"})).await;
    assert_eq!(schema["title"], "AgentManifest");
    let schema = call("aegis.schema.get", json!({"key": "workflow/manifest/v1"})).await;
    assert_eq!(schema["title"], "WorkflowManifest");

    let outcome =
        call_as(Tier::User, &catalog(), "aegis.schema.get", json!({"key": "agent/manifest/v2"})).await;
    assert_eq!(outcome.failure, Some(FailureKind::UnknownSchemaKey));
    assert_eq!(
        outcome.value,
        json!({
            "error": "no schema under that key; there are agent/manifest/v1 and workflow/manifest/v1; did you mean \
                      `agent/manifest/v1`?",
            "error_kind": "UnknownSchemaKey",
            "supported_keys": ["agent/manifest/v1", "workflow/manifest/v1"],
        })
    );
}

#[tokio::test]
async fn manifests_are_validated_with_places() {
    let catalog = catalog();
    let example = catalog.resolve("aegis.schema.validate").unwrap().examples[0].arguments.clone();
    assert_eq!(call("aegis.schema.validate", example.clone()).await, json!({"valid": true, "errors": null}));

    let yaml = example["manifest_yaml"].as_str().unwrap();
    let validate = async |from: &str, to: &str| {
        call("aegis.schema.validate", json!({"kind": "agent", "manifest_yaml": yaml.replace(from, to)})).await
    };
    assert_eq!(
        validate("instruction", "instrution").await,
        json!({"valid": false, "errors": [
            "line 6, column 10: /spec/task/instrution: unknown key `instrution`; did you mean `instruction`, which is missing?"
        ]})
    );
    assert_eq!(
        validate("3.12", "9").await["errors"][0],
        "line 5, column 40: /spec/runtime/version: python `9` is no runtime of this node; it has 3.9, 3.10, 3.11, 3.12"
    );
    let warned = validate("version: 1.0.0", "version: 1.0.0, lables: {}").await;
    assert_eq!((&warned["valid"], &warned["errors"]), (&json!(true), &Value::Null));
    assert!(warned["warnings"][0].as_str().unwrap().contains("did you mean `labels`?"));

    for (kind, text) in [("workflow", "{"), ("agent", "\0"), ("workflow", "[]"), ("agent", " ")] {
        let answer = call("aegis.schema.validate", json!({"kind": kind, "manifest_yaml": text})).await;
        assert_eq!(answer["valid"], false, "{text:?}");
        assert!(answer["errors"][0].as_str().unwrap().starts_with("line 1, column "), "{answer}");
    }
}

#[tokio::test]
async fn the_node_speaks_of_itself() {
    let info = call_as(Tier::Operator, &catalog(), "aegis.system.info", json!({})).await.value;
    assert_eq!(
        info,
        json!({"version": "1.2.3", "status": "healthy", "capabilities": ["files", "web", "audit", "mcp"]})
    );
    let config = call_as(Tier::Operator, &catalog(), "aegis.system.config", json!({})).await.value;
    assert_eq!(
        config,
        json!({"config_path": "/etc/aegis/node-config.yaml", "content_yaml": "kind: NodeConfig\n"})
    );

    let ill = NodeFacts {
        version: "1.2.3",
        capabilities: Vec::new(),
        healthy: Arc::new(|| false),
        config: Arc::new(|| ("nowhere".into(), String::new())),
    };
    let ill = register(Catalog::default(), ill, Vec::new());
    assert_eq!(
        call_as(Tier::Operator, &ill, "aegis.system.info", json!({})).await.value["status"],
        "unhealthy"
    );
    let outcome = call_as(Tier::Operator, &ill, "aegis.system.config", json!({})).await;
    assert_eq!(outcome.failure, Some(FailureKind::ConfigUnavailable));
    assert_eq!(outcome.value["tool"], "aegis.system.config");
}

#[tokio::test]
async fn runtimes_by_language() {
    let python = call("aegis.runtime.list", json!({"language": "python"})).await;
    let versions: Vec<&str> =
        python["runtimes"].as_array().unwrap().iter().map(|row| row["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["3.9", "3.10", "3.11", "3.12"]);
    assert_eq!(python["custom_runtime_supported"], true);
    assert_eq!(call("aegis.runtime.list", json!({"language": "cobol"})).await["runtimes"], json!([]));
    assert_eq!(
        call("aegis.runtime.list", json!({})).await["runtimes"].as_array().unwrap().len(),
        runtimes::registry(&[]).len()
    );
}
