# Ruby's Dalli; Debian's speaks the binary protocol without logging in: with_dalli.rb PORT
require 'dalli'

CACHE = Dalli::Client.new("127.0.0.1:#{ARGV[0]}", socket_timeout: 60, value_max_bytes: 64 << 20, compress: false)
Dalli.logger.level = Logger::FATAL
$failed = false

def equal(found, expected)
  raise "#{found.inspect[0, 200]} instead of #{expected.inspect[0, 200]}" if found != expected
end

def check(name)
  yield
  puts "PASS #{name}"
rescue StandardError => error
  $failed = true
  puts "FAIL #{name} #{error.class} #{error.message}"
end

def gone(key)
  deadline = Time.now + 30
  until CACHE.get(key).nil?
    raise "#{key} does not expire" if Time.now > deadline
    sleep 0.05
  end
end

$stdout.sync = true
check('store') do
  equal([CACHE.set('k', 'v') ? true : false, CACHE.get('k'), CACHE.add('k', 'w')], [true, 'v', false])
  CACHE.replace('none', 'w')
  CACHE.set('raw', 'b', 0, raw: true)
  equal([CACHE.append('raw', 'c'), CACHE.prepend('raw', 'a'), CACHE.get('raw', raw: true)], [true, true, 'abc'])
  equal([CACHE.get('none'), CACHE.delete('k'), CACHE.delete('k'), CACHE.get('k')], [nil, true, nil, nil])
  CACHE.set('object', { 'n' => [1, 2.5, nil] })
  equal(CACHE.get('object'), { 'n' => [1, 2.5, nil] })
end
check('multi-get') do
  documents = (0...300).to_h { |number| ["key-#{number}", number] }
  CACHE.multi { documents.each { |key, value| CACHE.set(key, value) } }
  equal(CACHE.get_multi(*documents.keys, 'none'), documents)
end
check('cas') do
  CACHE.set('c', 1)
  equal([CACHE.cas('c') { |value| value + 1 } ? true : false, CACHE.get('c'), CACHE.cas('none') { 1 }], [true, 2, nil])
  changed = CACHE.cas('c') do |value|
    CACHE.set('c', 100)
    value + 1
  end
  equal([changed, CACHE.get('c')], [false, 100])
end
check('counters') do
  equal([CACHE.incr('n', 5, 0, 10), CACHE.incr('n', 5), CACHE.decr('n', 6), CACHE.decr('n', 100), CACHE.incr('none')], [10, 15, 9, 0, nil])
end
check('expiry') do
  CACHE.set('soon', 'v', 1)
  # A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
  CACHE.set('touched', 'v', 1000)
  equal([CACHE.touch('touched', 1), CACHE.touch('none', 1)], [true, nil])
  gone('soon')
  gone('touched')
end
check('large') do
  large = Array.new(900_000) { |number| (number % 251).chr }.join
  CACHE.set('large', large, 0, raw: true)
  equal(CACHE.get('large', raw: true).b, large.b)
end
check('binary') do
  binary = ((0..255).to_a.pack('C*') * 8) + "\r\nEND\r\nVALUE x 0 1\r\n".b
  CACHE.set('binary', binary, 0, raw: true)
  equal(CACHE.get('binary', raw: true).b, binary)
  CACHE.set('empty', '', 0, raw: true)
  equal(CACHE.get('empty', raw: true), '')
end
check('errors') do
  CACHE.set('text', 'text', 0, raw: true)
  begin
    CACHE.incr('text')
    raise 'a text was counted up'
  rescue Dalli::DalliError
    equal(CACHE.get('text', raw: true), 'text')
  end
  CACHE.set('k' * 250, 'longest')
  equal(CACHE.get('k' * 250), 'longest')
  equal(CACHE.stats.values.first.key?('curr_items'), true)
end
exit($failed ? 1 : 0)
