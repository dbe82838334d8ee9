SELECT time_bucket(INTERVAL 10 SECONDS, date_time) AS window_start, auction, bidder, price, channel, url, date_time, extra
FROM bids
QUALIFY row_number() OVER (
    PARTITION BY window_start ORDER BY price DESC, date_time DESC, auction DESC, bidder DESC, channel DESC, url DESC, extra DESC
) = 1
