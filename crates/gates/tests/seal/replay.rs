//! An envelope is good once, whatever happens to clock, process and disk.

use std::os::unix::fs::FileExt;

use aegis_core::{ViolationKind, config::SealConfig};

use crate::stage::{BEGIN, SetClock, Stage, reason};

const REFUSED: (ViolationKind, Option<u16>) = (ViolationKind::SignatureVerificationFailed, Some(1003));

#[tokio::test]
async fn the_second_time_is_refused_for_as_long_as_it_could_be_fresh() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    // Signed for a time ahead: it stays fresh for two windows.
    let ahead = client.call("1", BEGIN + 30);
    assert!(stage.send(&ahead).await.is_ok());
    for second in BEGIN..=BEGIN + 62 {
        stage.clock.set(second);
        assert_eq!(reason(stage.send(&ahead).await), REFUSED, "{second}");
    }
    // The same payload under another time or id is another envelope; the fraction of a second is not signed.
    let one = client.call("2", BEGIN + 62);
    assert!(stage.send(&one).await.is_ok());
    let mut other_fraction = one.clone();
    other_fraction["timestamp"] = "2026-02-17T14:33:03.999Z".into();
    assert_eq!(reason(stage.send(&other_fraction).await), REFUSED);
    assert!(stage.send(&client.call("3", BEGIN + 62)).await.is_ok());
    assert!(stage.send(&client.call("2", BEGIN + 63)).await.is_ok());
}

#[tokio::test]
async fn of_many_at_once_one_is_accepted() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let body = client.call("1", BEGIN).to_string();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (gate, body) = (stage.gate.clone(), body.clone());
        tasks.spawn_blocking(move || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(async { gate.verify(body.as_bytes()).await.is_ok() })
        });
    }
    let accepted = tasks.join_all().await.into_iter().filter(|accepted| *accepted).count();
    assert_eq!(accepted, 1);
}

#[tokio::test]
async fn a_killed_process_forgets_nothing() {
    let mut stage = Stage::new().await;
    let client = stage.client().await;
    let mut used = Vec::new();
    for round in 0..5 {
        for number in 0..20 {
            let envelope = client.call(&format!("{round}-{number}"), BEGIN + round + 20 - number);
            assert!(stage.send(&envelope).await.is_ok());
            used.push(envelope);
        }
        stage = stage.killed().await;
        stage.clock.set(BEGIN + round + 1);
        for envelope in &used {
            assert_eq!(reason(stage.send(envelope).await), REFUSED);
        }
        let fresh = client.call(&format!("{round}-new"), BEGIN + round + 1);
        assert!(stage.send(&fresh).await.is_ok(), "the session goes on at once");
        used.push(fresh);
    }
}

#[tokio::test]
async fn an_envelope_that_was_not_sent_before_the_restart_is_good_after_it() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    assert!(stage.send(&client.call("1", BEGIN)).await.is_ok());
    let kept = client.call("2", BEGIN);
    let stage = stage.killed().await;
    stage.clock.set(BEGIN + 5);
    assert!(stage.send(&kept).await.is_ok());
}

/// As after a power failure: the file is there, from another run of the kernel, and was not closed.
fn lose_power(stage: &Stage) {
    let file = std::fs::OpenOptions::new().write(true).open(stage.path().join("seal-replay-0")).unwrap();
    file.write_all_at(&[0x5a; 16], 8).unwrap();
}

#[tokio::test]
async fn after_a_power_failure_what_can_not_be_known_is_refused() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let used = client.call("1", BEGIN + 30);
    assert!(stage.send(&used).await.is_ok());
    lose_power(&stage);
    let stage = stage.killed().await;
    stage.clock.set(BEGIN + 2);
    assert_eq!(reason(stage.send(&used).await), REFUSED);
    assert_eq!(reason(stage.send(&client.call("2", BEGIN + 2)).await), REFUSED);
    // A session opened since can't have been used before.
    let fresh = stage.client().await;
    assert!(stage.send(&fresh.call("1", BEGIN + 2)).await.is_ok());
    // Still so after another restart.
    let stage = stage.killed().await;
    assert_eq!(reason(stage.send(&client.call("3", BEGIN + 2)).await), REFUSED);
    stage.clock.set(BEGIN + 33);
    assert!(stage.send(&client.call("4", BEGIN + 33)).await.is_ok());
    assert_eq!(reason(stage.send(&used).await), REFUSED);
}

#[tokio::test]
async fn a_log_that_is_gone_or_damaged_counts_as_a_power_failure() {
    for damage in ["gone", "damaged"] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        let used = client.call("1", BEGIN);
        assert!(stage.send(&used).await.is_ok());
        let path = stage.path().join("seal-replay-0");
        match damage {
            "gone" => std::fs::remove_file(&path).unwrap(),
            _ => std::fs::write(&path, [7; 500]).unwrap(),
        }
        let stage = stage.killed().await;
        assert_eq!(reason(stage.send(&used).await), REFUSED, "{damage}");
    }
}

#[tokio::test]
async fn a_clean_stop_is_whole_even_when_the_machine_restarts() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let used = client.call("1", BEGIN);
    assert!(stage.send(&used).await.is_ok());
    stage.gate.close().await;
    lose_power(&stage);
    let stage = stage.killed().await;
    assert_eq!(reason(stage.send(&used).await), REFUSED);
    assert!(stage.send(&client.call("2", BEGIN)).await.is_ok());
}

#[tokio::test]
async fn a_torn_entry_was_never_acknowledged() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    assert!(stage.send(&client.call("1", BEGIN)).await.is_ok());
    let path = stage.path().join("seal-replay-0");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[1; 17]);
    std::fs::write(&path, bytes).unwrap();
    let stage = stage.killed().await;
    assert!(stage.send(&client.call("2", BEGIN)).await.is_ok());
    let stage = stage.killed().await;
    for id in ["1", "2"] {
        assert_eq!(reason(stage.send(&client.call(id, BEGIN)).await), REFUSED);
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_and_back_brings_nothing_back() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let used = client.call("1", BEGIN);
    assert!(stage.send(&used).await.is_ok());
    stage.clock.set(BEGIN + 1800);
    assert!(stage.send(&client.call("2", BEGIN + 1800)).await.is_ok());
    stage.clock.set(BEGIN + 1);
    assert_eq!(reason(stage.send(&used).await), REFUSED);
    let refusal = stage.send(&client.call("3", BEGIN + 1)).await.unwrap_err();
    assert!(refusal.violation.message.contains("clock was set back"), "{}", refusal.violation.message);
    // Attesting again helps at once; so does the time that was lost.
    let again = stage.client().await;
    let envelope = again.call("1", BEGIN + 1);
    assert!(stage.send(&envelope).await.is_ok());
    assert_eq!(reason(stage.send(&envelope).await), REFUSED);
    stage.clock.set(BEGIN + 1790);
    assert!(stage.send(&client.call("4", BEGIN + 1790)).await.is_ok());
    assert_eq!(
        reason(stage.send(&client.call("2", BEGIN + 1800)).await),
        REFUSED,
        "used before the jump back"
    );
}

#[tokio::test]
async fn a_clock_that_jumps_back_a_little_stops_nobody() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.clock.set(BEGIN + 20);
    let used = client.call("1", BEGIN + 10);
    assert!(stage.send(&used).await.is_ok());
    stage.clock.set(BEGIN);
    assert!(stage.send(&client.call("2", BEGIN)).await.is_ok());
    assert_eq!(reason(stage.send(&used).await), REFUSED);
}

#[tokio::test]
async fn a_clock_set_back_while_the_node_was_down() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let used = client.call("1", BEGIN);
    assert!(stage.send(&used).await.is_ok());
    stage.clock.set(BEGIN + 1000);
    assert!(stage.send(&client.call("2", BEGIN + 1000)).await.is_ok());
    stage.clock.set(BEGIN);
    let stage = stage.killed().await;
    assert_eq!(reason(stage.send(&used).await), REFUSED);
    assert!(stage.send(&client.call("3", BEGIN)).await.is_ok(), "all that was used is still known");
}

#[tokio::test]
async fn when_memory_is_full_the_gate_refuses_rather_than_forgets() {
    let config = SealConfig { attestations_per_minute: 100, ..SealConfig::default() };
    let stage = Stage::at(tempfile::tempdir().unwrap(), config, SetClock::new(BEGIN), 10).await;
    let client = stage.client().await;
    let first = client.call("0", BEGIN);
    assert!(stage.send(&first).await.is_ok());
    for number in 1..10 {
        assert!(stage.send(&client.call(&number.to_string(), BEGIN)).await.is_ok());
    }
    assert_eq!(reason(stage.send(&client.call("10", BEGIN)).await), (ViolationKind::Overloaded, None));
    assert_eq!(reason(stage.send(&first).await), REFUSED);
    stage.clock.set(BEGIN + 32);
    assert!(stage.send(&client.call("11", BEGIN + 32)).await.is_ok());
}

#[tokio::test]
async fn an_envelope_that_nobody_signed_takes_no_room() {
    let config = SealConfig { attestations_per_minute: 100, ..SealConfig::default() };
    let stage = Stage::at(tempfile::tempdir().unwrap(), config, SetClock::new(BEGIN), 2).await;
    let client = stage.client().await;
    for number in 0..20 {
        let mut forged = client.call(&number.to_string(), BEGIN);
        forged["payload"]["id"] = "changed".into();
        assert!(stage.send(&forged).await.is_err());
    }
    assert!(stage.send(&client.call("1", BEGIN)).await.is_ok());
}
