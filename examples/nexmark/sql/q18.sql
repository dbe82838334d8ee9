SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids
QUALIFY row_number() OVER (
    PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC, channel DESC, url DESC, extra DESC
) = 1
