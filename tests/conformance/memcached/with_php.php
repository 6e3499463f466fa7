<?php
// PHP's Memcached, on libmemcached, with the text protocol: with_php.php PORT

$cache = new Memcached();
$cache->addServer('127.0.0.1', (int) $argv[1]);
$cache->setOptions([
    Memcached::OPT_BINARY_PROTOCOL => false, Memcached::OPT_TCP_NODELAY => true, Memcached::OPT_RECV_TIMEOUT => 60000000,
    Memcached::OPT_SEND_TIMEOUT => 60000000, Memcached::OPT_COMPRESSION => false,
]);
$failed = 0;

function equal($found, $expected) {
    if ($found !== $expected) {
        throw new Exception(substr(json_encode($found, JSON_INVALID_UTF8_SUBSTITUTE), 0, 200) . ' instead of '
            . substr(json_encode($expected, JSON_INVALID_UTF8_SUBSTITUTE), 0, 200));
    }
}

function check($name, $body) {
    global $failed;
    try {
        $body();
        echo "PASS $name\n";
    } catch (Throwable $error) {
        $failed = 1;
        echo "FAIL $name {$error->getMessage()}\n";
    }
}

function gone($cache, $key) {
    $deadline = microtime(true) + 30;
    while ($cache->get($key) !== false) {
        if (microtime(true) > $deadline) {
            throw new Exception("$key does not expire");
        }
        usleep(50000);
    }
}

check('store', function () use ($cache) {
    equal([$cache->set('k', 'v'), $cache->get('k'), $cache->add('k', 'w'), $cache->getResultCode()], [true, 'v', false, Memcached::RES_NOTSTORED]);
    equal([$cache->replace('none', 'w'), $cache->replace('k', 'b'), $cache->append('k', 'c'), $cache->prepend('k', 'a')], [false, true, true, true]);
    equal([$cache->get('k'), $cache->get('none'), $cache->getResultCode()], ['abc', false, Memcached::RES_NOTFOUND]);
    equal([$cache->delete('k'), $cache->delete('k')], [true, false]);
    equal([$cache->set('object', ['n' => [1, 2.5, null]]), $cache->get('object')], [true, ['n' => [1, 2.5, null]]]);
});
check('multi-get', function () use ($cache) {
    $documents = [];
    for ($number = 0; $number < 300; $number++) {
        $documents["key-$number"] = $number;
    }
    equal($cache->setMulti($documents), true);
    $found = $cache->getMulti([...array_keys($documents), 'none'], Memcached::GET_PRESERVE_ORDER);
    equal($found, $documents + ['none' => null]);
});
check('cas', function () use ($cache) {
    $cache->set('c', '1');
    $found = $cache->get('c', null, Memcached::GET_EXTENDED);
    equal([$found['value'], $cache->cas($found['cas'], 'c', '2'), $cache->cas($found['cas'], 'c', '3')], ['1', true, false]);
    equal([$cache->getResultCode(), $cache->get('c')], [Memcached::RES_DATA_EXISTS, '2']);
});
check('counters', function () use ($cache) {
    $cache->set('n', 10);
    equal([$cache->increment('n', 5), $cache->decrement('n', 6), $cache->decrement('n', 100), $cache->increment('none')], [15, 9, 0, false]);
});
check('expiry', function () use ($cache) {
    $cache->set('soon', 'v', 1);
    // A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    $cache->set('touched', 'v', 1000);
    equal([$cache->touch('touched', 1), $cache->touch('none', 1)], [true, false]);
    gone($cache, 'soon');
    gone($cache, 'touched');
});
check('large', function () use ($cache) {
    $large = substr(str_repeat(implode('', array_map('chr', range(0, 250))), 4000), 0, 900000);
    equal([$cache->set('large', $large), $cache->get('large')], [true, $large]);
});
check('binary', function () use ($cache) {
    $binary = str_repeat(implode('', array_map('chr', range(0, 255))), 8) . "\r\nEND\r\nVALUE x 0 1\r\n";
    equal([$cache->set('binary', $binary), $cache->get('binary'), $cache->set('empty', ''), $cache->get('empty')], [true, $binary, true, '']);
});
check('errors', function () use ($cache) {
    $cache->set('text', 'text');
    equal($cache->increment('text'), false);
    equal($cache->set('huge', str_repeat("\0", 21 << 20)), false);
    equal($cache->getResultCode(), Memcached::RES_E2BIG);
    equal([$cache->set(str_repeat('k', 250), 'longest'), $cache->get('text')], [true, 'text']);
    equal(count($cache->getVersion()), 1);
    equal(isset(array_values($cache->getStats())[0]['curr_items']), true);
});
exit($failed);
