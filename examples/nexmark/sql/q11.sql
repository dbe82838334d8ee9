WITH marked AS (
    SELECT bidder, date_time, date_time - lag(date_time) OVER of_bidder < INTERVAL 10 SECONDS AS goes_on
    FROM bids
    WINDOW of_bidder AS (PARTITION BY bidder ORDER BY date_time)
), numbered AS (
    SELECT bidder, date_time, count(*) FILTER (goes_on IS NOT TRUE) OVER (PARTITION BY bidder ORDER BY date_time) AS session
    FROM marked
)
SELECT bidder, min(date_time) AS window_start, max(date_time) + INTERVAL 10 SECONDS AS window_end, count(*) AS bid_count
FROM numbered
GROUP BY bidder, session
