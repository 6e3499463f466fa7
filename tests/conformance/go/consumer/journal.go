package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// position is where a stream goes on: the last change that was seen, and the snapshot that it is part of.
type position struct {
	uuid, seqno, start, end uint64
}

// journal is a file with a line for each thing that a stream said, and so the state of the consumer, too.
//
// See ../../python/journals.py for the lines. A line that a killed consumer did not finish is cut off.
type journal struct {
	lock      sync.Mutex
	file      *os.File
	buffer    *bufio.Writer
	positions map[uint16]position
}

func openJournal(path string) *journal {
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		panic(err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	file := must(os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600))
	ok(file.Truncate(int64(len(content))))
	must(file.Seek(0, 2))
	j := &journal{file: file, buffer: bufio.NewWriterSize(file, 64*1024), positions: map[uint16]position{}}
	for _, line := range strings.Split(string(content), "\n") {
		j.resume(strings.Split(line, "\t"))
	}
	go j.flush()
	return j
}

// resume takes the position from a line that has one.
func (j *journal) resume(fields []string) {
	if !slices.Contains([]string{"change", "event", "advanced", "rollback"}, fields[0]) {
		return
	}
	var numbers [5]uint64
	for index := range numbers {
		numbers[index] = must(strconv.ParseUint(fields[index+1], 10, 64))
	}
	j.positions[uint16(numbers[0])] = position{numbers[1], numbers[2], numbers[3], numbers[4]}
}

// moved writes a line that moves the position of a vbucket.
func (j *journal) moved(word string, vb uint16, at position, rest ...any) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.positions[vb] = at
	fmt.Fprintf(j.buffer, "%s\t%d\t%d\t%d\t%d\t%d", word, vb, at.uuid, at.seqno, at.start, at.end)
	j.finish(rest)
}

// noted writes a line that moves nothing.
func (j *journal) noted(word string, vb uint16, rest ...any) {
	j.lock.Lock()
	defer j.lock.Unlock()
	fmt.Fprintf(j.buffer, "%s\t%d", word, vb)
	j.finish(rest)
}

func (j *journal) finish(rest []any) {
	for _, each := range rest {
		fmt.Fprintf(j.buffer, "\t%v", each)
	}
	j.buffer.WriteByte('\n')
}

func (j *journal) position(vb uint16) position {
	j.lock.Lock()
	defer j.lock.Unlock()
	return j.positions[vb]
}

func (j *journal) flush() {
	for {
		time.Sleep(20 * time.Millisecond)
		j.lock.Lock()
		ok(j.buffer.Flush())
		j.lock.Unlock()
	}
}
