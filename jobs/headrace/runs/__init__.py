"""What a run does: process, replay, backfill, recover, publish, late records. Services without a front door."""
