SELECT bidder, time_bucket(INTERVAL 10 SECONDS, arrived_at) AS window_start, count(*) AS bid_count
FROM bids
GROUP BY ALL
